/* CRC-32C against known values and against a table-free implementation of its own. */
#include <string.h>
#include <sys/mman.h>

#include "glide-rdmad.h"
#include "unit_main.h"

static uint32_t by_bits(const unsigned char *bytes, size_t length)
{
    uint32_t state = ~UINT32_C(0);

    for (size_t i = 0; i < length; i++) {
        state ^= bytes[i];
        for (int bit = 0; bit < 8; bit++) {
            state = (state >> 1) ^ ((state & 1) != 0 ? UINT32_C(0x82F63B78) : 0);
        }
    }
    return ~state;
}

START_TEST(known_values)
{
    unsigned char ramp[32], zeros[32] = {0}, ones[32];

    for (unsigned i = 0; i < 32; i++) {
        ramp[i] = (unsigned char)i;
        ones[i] = 0xff;
    }
    ck_assert_uint_eq(grd_checksum("123456789", 9), 0xE3069283);
    ck_assert_uint_eq(grd_checksum(NULL, 0), 0);
    ck_assert_uint_eq(grd_checksum("", 0), 0);
    /* RFC 3720, B.4 */
    ck_assert_uint_eq(grd_checksum(zeros, 32), 0x8A9136AA);
    ck_assert_uint_eq(grd_checksum(ones, 32), 0x62A8AB43);
    ck_assert_uint_eq(grd_checksum(ramp, 32), 0x46DD794E);
}
END_TEST

START_TEST(every_length_and_alignment)
{
    unsigned char bytes[300];

    for (unsigned i = 0; i < sizeof(bytes); i++) {
        bytes[i] = (unsigned char)(i * 167 + 13);
    }
    for (size_t offset = 0; offset < 9; offset++) {
        for (size_t length = 0; length <= 256; length++) {
            ck_assert_uint_eq(grd_checksum(bytes + offset, length), by_bits(bytes + offset, length));
        }
    }
}
END_TEST

/* Longer than the int that the implementation takes; untouched pages of a private mapping share one zero page. */
START_TEST(longer_than_an_int)
{
    size_t length = ((size_t)4 << 30) + 4097;
    unsigned char *zeros = mmap(NULL, length, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    ck_assert_ptr_ne(zeros, MAP_FAILED);
    ck_assert_uint_eq(grd_checksum(zeros, length), 0x113A92D0);
    munmap(zeros, length);
}
END_TEST

UNIT_MAIN("client_checksum", known_values, every_length_and_alignment, longer_than_an_int)
