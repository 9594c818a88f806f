/// Generated code on disk, for engines that make it: a directory that is the user's alone, and files that are written
/// under another name, closed with a checksum and renamed. A file that is not complete, or whose directory belongs to
/// somebody else, is none.
#ifndef DIT_HOST_ENGINE_CODE_FILES_H
#define DIT_HOST_ENGINE_CODE_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

uint64_t code_hash(uint64_t hash, const char *data, size_t size);
/// The directory that option `option` names, else one in the user's cache directory; made when it is missing.
bool code_find_directory(const char *option, char *path, size_t size);
bool code_write(int file, const char *data, size_t size);  ///< all of it
/// Close a file that somebody else wrote with the checksum; is one complete?
bool code_complete(const char *path);
bool code_is_complete(const char *path);
/// Two threads of one process may not save one path at once.
bool code_save(const char *path, const char *data, size_t size);
/// What code_save wrote and a 0, dit_free by the caller; NULL: there is none.
char *code_read(const char *path, size_t *size);

#endif
