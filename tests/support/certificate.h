/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes a self-signed certificate for 127.0.0.1. All ranks of a test use its file as certificate, as private key and as
 * certificate authority. The code is in a header because the programs of tests/threads do not link tests/support. */
#ifndef STRATA_TESTS_SUPPORT_CERTIFICATE_H
#define STRATA_TESTS_SUPPORT_CERTIFICATE_H

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { TEST_CERTIFICATE_BYTES = 64 };

/* Writes the certificate and its key to a new file, and the file's path to out_path. The caller unlinks the file. */
static inline void test_certificate_make(char out_path[TEST_CERTIFICATE_BYTES]) {
    snprintf(out_path, TEST_CERTIFICATE_BYTES, "/tmp/strata-certificate-XXXXXX");
    const int fd = mkstemp(out_path);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *x = X509_new();
    if (!file || !key || !x) abort();
    X509_set_version(x, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(x), 1);
    X509_gmtime_adj(X509_getm_notBefore(x), -3600);
    X509_gmtime_adj(X509_getm_notAfter(x), 3600);
    X509_set_pubkey(x, key);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(x), "CN", MBSTRING_ASC, (const unsigned char *)"both", -1, -1, 0);
    X509_set_issuer_name(x, X509_get_subject_name(x));
    X509_EXTENSION *names = X509V3_EXT_conf_nid(NULL, NULL, NID_subject_alt_name, "IP:127.0.0.1");
    if (!names || !X509_add_ext(x, names, -1) || !X509_sign(x, key, EVP_sha256())) abort();
    if (!PEM_write_X509(file, x) || !PEM_write_PrivateKey(file, key, NULL, NULL, 0, NULL, NULL)) abort();
    X509_EXTENSION_free(names);
    X509_free(x);
    EVP_PKEY_free(key);
    fclose(file);
}

#endif
