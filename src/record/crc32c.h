/// CRC-32C (Castagnoli), the checksum of the record log. Internal to record.
#ifndef DIT_RECORD_CRC32C_H
#define DIT_RECORD_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/// The checksum of `size` bytes continuing from `crc` (0 to start): crc(crc(0, a), b) is the checksum of a and b
/// joined.
uint32_t dit_crc32c(uint32_t crc, const void *data, size_t size);
/// The same by table, for machines without the instruction and for the tests.
uint32_t dit_crc32c_table(uint32_t crc, const void *data, size_t size);

#endif
