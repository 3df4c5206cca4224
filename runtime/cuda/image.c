/*
 * A cubin is a 64-bit ELF file. Its entry points are defined symbols of the type "function". PTX is text. Its entry
 * points follow the word ".entry".
 *
 * - No offset or size in an ELF file is used before a check that it lies in the file.
 * - Structures are copied out, because a structure inside an image need not be aligned.
 */
#include <elf.h>
#include <string.h>
#include "runtime/cuda/image.h"

static bool lies_in(const fa2i_blob *image, uint64_t offset, uint64_t bytes)
{
    return offset <= image->bytes && bytes <= image->bytes - offset;
}

/* Copies a structure out of the image. Returns false if it does not lie in the image as a whole. */
static bool take(const fa2i_blob *image, uint64_t offset, void *out, size_t bytes)
{
    if (!lies_in(image, offset, bytes))
        return false;
    memcpy(out, (const char *)image->data + offset, bytes);
    return true;
}

static bool take_section(const fa2i_blob *image, const Elf64_Ehdr *header, uint64_t index, Elf64_Shdr *ret_section)
{
    return index < header->e_shnum && header->e_shentsize == sizeof *ret_section &&
           lies_in(image, header->e_shoff, 0) &&
           take(image, header->e_shoff + index * sizeof *ret_section, ret_section, sizeof *ret_section) &&
           lies_in(image, ret_section->sh_offset, ret_section->sh_size);
}

/* Returns whether the symbol table has this function. names: the section of the symbols' names. */
static bool has_function(const fa2i_blob *image, const Elf64_Shdr *symbols, const Elf64_Shdr *names, const char *name)
{
    const size_t bytes = strlen(name) + 1;
    const char *text = (const char *)image->data + names->sh_offset;
    for (uint64_t i = 0; i < symbols->sh_size / sizeof(Elf64_Sym); i++) {
        Elf64_Sym symbol;
        if (!take(image, symbols->sh_offset + i * sizeof symbol, &symbol, sizeof symbol))
            return false;
        if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC && symbol.st_shndx != SHN_UNDEF &&
            symbol.st_name <= names->sh_size && bytes <= names->sh_size - symbol.st_name &&
            memcmp(text + symbol.st_name, name, bytes) == 0)
            return true;
    }
    return false;
}

static bool cubin_has(const fa2i_blob *image, const char *name)
{
    Elf64_Ehdr header;
    Elf64_Shdr symbols, names;
    if (!take(image, 0, &header, sizeof header) || header.e_ident[EI_CLASS] != ELFCLASS64)
        return false;
    for (uint64_t i = 0; i < header.e_shnum; i++) {
        if (take_section(image, &header, i, &symbols) && symbols.sh_type == SHT_SYMTAB &&
            take_section(image, &header, symbols.sh_link, &names) && has_function(image, &symbols, &names, name))
            return true;
    }
    return false;
}

static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '$';
}

static bool ptx_has(const char *text, size_t bytes, const char *name)
{
    static const char word[] = ".entry ";
    const size_t head = sizeof word - 1, length = strlen(name);
    for (size_t i = 0; i + head + length < bytes; i++) {
        if (memcmp(text + i, word, head) == 0 && memcmp(text + i + head, name, length) == 0 &&
            !is_name(text[i + head + length]))
            return true;
    }
    return false;
}

bool fa2i_image_has_entry(const fa2i_blob *image, const char *name)
{
    const bool elf = image->bytes >= SELFMAG && memcmp(image->data, ELFMAG, SELFMAG) == 0;
    return elf ? cubin_has(image, name) : ptx_has(image->data, image->bytes, name);
}
