# SPDX-License-Identifier: Apache-2.0
"""Reads the C declarations of include/strata/*.h, so that no struct, enum or function is written down a second time in Python.

parse(text) returns a table that JSON can hold:

    constants   name -> int              enumerators of all enums
    structs     name -> [[type, field, dims], ...] or None for a handle, whose fields are the library's own
    aliases     name -> type             typedefs of other types; an enum is an alias of "int"
    callbacks   name -> [result, [type, ...]]
    functions   name -> [result, [[type, parameter], ...]]
    arrays      [name, ...]              NULL-terminated arrays of texts

The build of a wheel writes the table to _api.json; in a source tree the headers are read at import."""
import re



def read(folder):
    """Returns the table of all headers in a folder (include/strata) that strata.h includes."""
    texts = {}

    def visit(name):
        text = (folder / f"{name}.h").read_text(encoding="utf-8")
        for included in re.findall(r'#include "strata/(\w+)\.h"', text):
            if included not in texts:
                visit(included)
        texts[name] = text
    visit("strata")
    return parse("\n".join(texts.values()))


def _number(expression, constants):
    words = re.sub(r"[A-Za-z_]\w*", lambda m: str(constants[m.group()]), re.sub(r"\((?:u?int\d+_t)\)", "", expression))
    if not re.fullmatch(r"[\d\s+\-*()<|]+", words):
        raise ValueError(f"no constant expression: {expression}")
    return eval(words)  # only digits and operators


def _dims(text, constants):
    return [_number(d, constants) for d in re.findall(r"\[([^\]]+)\]", text)]


def _split(text, separator=","):
    """Splits the text at separators that are outside of brackets."""
    parts, depth, part = [], 0, ""
    for c in text:
        depth += (c in "({[") - (c in ")}]")
        if c == separator and not depth:
            parts.append(part.strip())
            part = ""
        else:
            part += c
    return parts + [part.strip()] if part.strip() else parts


def _type(text):
    text = text.replace("unsigned char", "uint8_t")
    return re.sub(r"\s*\*\s*", "*", re.sub(r"\b(?:const|struct)\b", " ", text)).strip() \
        if "char" not in text else re.sub(r"\s*\*\s*", "*", re.sub(r"\s+", " ", text)).strip()


def _declarator(text, constants):
    """'const char *const *names', 'char out_hex[65]' -> [type, name, dims]. The type of a function pointer is "callback"."""
    pointer = re.fullmatch(r"(.+?)\(\s*\*\s*(\w+)\s*\)\s*\((.*)\)", text, re.S)
    if pointer:
        parameters = [_type(re.sub(r"\b\w+$", "", p).strip() or p) for p in _split(pointer[3])]
        return [["callback", _type(pointer[1]), parameters], pointer[2], []]
    name = re.search(r"(\w+)\s*((?:\[[^\]]*\])*)\s*$", text)
    return [_type(text[:name.start()]), name[1], _dims(name[2], constants)]


def _fields(body, constants):
    fields = []
    for declaration in _split(body, ";"):
        inner = re.fullmatch(r"struct\s*\{(.*)\}\s*(\w+)\s*(.*)", declaration, re.S)
        if inner:
            fields.append([["struct", _fields(inner[1], constants)], inner[2], _dims(inner[3], constants)])
            continue
        first, *others = _split(declaration)
        kind, name, dims = _declarator(first, constants)
        fields.append([kind, name, dims])
        for other in others:  # such as "uint64_t upload_bytes, download_bytes"
            fields.append([kind, *_declarator(f"x {other}", constants)[1:]])
    return fields


def parse(text):
    text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.S)
    text = re.sub(r"#ifdef __cplusplus.*?#endif", " ", text, flags=re.S)
    constants = {name: int(value) for name, value in re.findall(r"#define (STRATA_\w+)\s+(\d+)\b", text)}
    text = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", "", text, flags=re.M)
    text = re.sub(r"static inline [^{;]*\{(?:[^\n]*\}\n|.*?\n\})", "", text, flags=re.S)  # formatted: } closes it alone
    text = re.sub(r"\bSTRATA_(?:API|MUST_USE)\b|\bSTRATA_PRINTF\([^)]*\)", "", text)
    table = {"constants": constants, "structs": {}, "aliases": {}, "callbacks": {}, "functions": {}, "arrays": []}
    for declaration in _split(text, ";"):
        enum = re.search(r"\benum\s*\w*\s*\{(.*)\}\s*(\w*)$", declaration, re.S)
        struct = re.fullmatch(r"typedef struct \w+\s*\{(.*)\}\s*(\w+)", declaration, re.S)
        callback = re.fullmatch(r"typedef (.+?)\(\s*\*\s*(strata_\w+)\)\s*\((.*)\)", declaration, re.S) \
            or re.fullmatch(r"typedef ([\w\s]+?\**)\s*(strata_\w+)\s*\((.*)\)", declaration, re.S)
        function = re.fullmatch(r"([\w\s*]+?)\b(strata_\w+)\s*\((.*)\)", declaration, re.S)
        if enum:
            value = -1
            for item in _split(enum[1]):
                name, _, expression = (s.strip() for s in item.partition("="))
                value = _number(expression, constants) if expression else value + 1
                constants[name] = value
            if enum[2]:
                table["aliases"][enum[2]] = "int"
        elif struct:
            table["structs"][struct[2]] = _fields(struct[1], constants)
        elif callback:
            table["callbacks"][callback[2]] = [_type(callback[1]), [_declarator(p, constants)[0] for p in _split(callback[3])]]
        elif declaration.startswith("typedef struct") or re.fullmatch(r"struct \w+", declaration):
            table["structs"].setdefault(declaration.split()[-1], None)
        elif declaration.startswith("typedef"):
            old, name = re.fullmatch(r"typedef (.+?)\s*(\w+)", declaration, re.S).groups()
            table["aliases"][name] = _type(old)
        elif re.match(r"extern\b.*\[\]$", declaration, re.S):
            table["arrays"].append(re.search(r"(\w+)\[\]$", declaration)[1])
        elif function and "..." not in function[3]:
            parameters = [] if function[3].strip() in ("", "void") else [_declarator(p, constants) for p in _split(function[3])]
            table["functions"][function[2]] = [_type(function[1]), parameters]
    return table
