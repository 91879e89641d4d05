/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks the header and the segments of a shared object (elf.h). */
#include "core/base/elf.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#if defined(__linux__)
#include <elf.h>

static const struct {
    int machine;
    const char *name;
} machines[] = {{EM_386, "x86, 32 bits"}, {EM_X86_64, "x86-64"}, {EM_ARM, "ARM, 32 bits"}, {EM_AARCH64, "AArch64"},
                {EM_RISCV, "RISC-V"},     {EM_PPC64, "POWER"},   {EM_S390, "s390x"},       {EM_MIPS, "MIPS"},
                {EM_SPARCV9, "SPARC"},    {258, "LoongArch"}};

static const char *machine_name(int machine) {
    for (size_t i = 0; i < sizeof machines / sizeof *machines; i++)
        if (machines[i].machine == machine) return machines[i].name;
    return "an unknown processor";
}

/* Reads the header; false: the file has none. */
static bool read_header(FILE *file, Elf64_Ehdr *out_header) {
    return file && fread(out_header, sizeof *out_header, 1, file) == 1 && !memcmp(out_header->e_ident, ELFMAG, SELFMAG);
}

static strata_status check_segments(FILE *file, const Elf64_Ehdr *header, strata_error *err) {
    if (fseeko(file, 0, SEEK_END)) return STRATA_OK;
    const uint64_t bytes = (uint64_t)ftello(file);
    for (int i = 0; i < header->e_phnum; i++) {
        Elf64_Phdr segment;
        const uint64_t at = header->e_phoff + (uint64_t)i * header->e_phentsize;
        uint64_t end = at + sizeof segment;
        if (at < header->e_phoff || end > bytes || fseeko(file, (off_t)at, SEEK_SET) ||
            fread(&segment, sizeof segment, 1, file) != 1 ||
            (segment.p_type == PT_LOAD && (__builtin_add_overflow(segment.p_offset, segment.p_filesz, &end) || end > bytes)))
            return strata_fail(err, STRATA_INVALID,
                               "it is truncated: the file has %" PRIu64 " bytes, and its segments need %" PRIu64
                               " at least; copy or build it again",
                               bytes, end);
    }
    return STRATA_OK;
}

static strata_status check_header(FILE *file, const Elf64_Ehdr *header, strata_error *err) {
    Elf64_Ehdr own;
    FILE *self = fopen("/proc/self/exe", "rb");
    const bool known = read_header(self, &own);
    if (self) fclose(self);
    const int other = header->e_machine;
    if (known && (other != own.e_machine || memcmp(header->e_ident + EI_CLASS, own.e_ident + EI_CLASS, 2) != 0))
        return strata_fail(err, STRATA_INVALID, "it was built for %s (ELF machine %d), and this process runs on %s (%d)%s",
                           machine_name(other), other, machine_name(own.e_machine), own.e_machine,
                           other == own.e_machine ? "; its word size or byte order is another" : "");
    if (header->e_type != ET_DYN)
        return strata_fail(err, STRATA_INVALID, "it is an ELF file, and no shared object; link it with -shared");
    return header->e_ident[EI_CLASS] == ELFCLASS64 ? check_segments(file, header, err) : STRATA_OK;
}

strata_status strata_elf_check(const char *path, strata_error *err) {
    Elf64_Ehdr header = {0};
    FILE *file = fopen(path, "rb");
    if (!file) return STRATA_OK;
    unsigned char magic[SELFMAG];
    strata_status status = STRATA_OK;
    if (fread(magic, 1, SELFMAG, file) == SELFMAG && !memcmp(magic, ELFMAG, SELFMAG)) {
        rewind(file);
        status =
            read_header(file, &header)
                ? check_header(file, &header, err)
                : strata_fail(err, STRATA_INVALID, "it is truncated: its ELF header is not complete; copy or build it again");
    }
    fclose(file);
    return status;
}
#else
strata_status strata_elf_check(const char *path, strata_error *err) {
    (void)path, (void)err;
    return STRATA_OK;
}
#endif
