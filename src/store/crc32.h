/// CRC-32 (IEEE 802.3), the checksum of ZIP archives and of the container. Internal to store.
#ifndef DIT_STORE_CRC32_H
#define DIT_STORE_CRC32_H

#include <stddef.h>
#include <stdint.h>

/// The checksum of `size` bytes continuing from `crc` (0 to start): crc(crc(0, a), b) is the checksum of a and b
/// joined.
uint32_t dit_crc32(uint32_t crc, const void *data, size_t size);
/// The same by table, for machines without a fitting instruction and for the tests.
uint32_t dit_crc32_table(uint32_t crc, const void *data, size_t size);

#endif
