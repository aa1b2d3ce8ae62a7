/*
 * The public header alone, in strict C11 and C17, with the library behind it. And the binary interface: what stands
 * here belongs to the soname, and neither moves nor changes its size. Fields are only added behind the last of a struct
 * with struct_size, or out of `reserved`.
 */
#include <glide-rdmad.h>
#include <stdio.h>
#include <string.h>

#define AT(type, member, offset)                                                                                      \
    _Static_assert(sizeof(void *) != 8 || offsetof(struct type, member) == (offset), #type "." #member " moved")
#define SIZE(type, size) _Static_assert(sizeof(void *) != 8 || sizeof(struct type) == (size), #type " changed its size")

SIZE(grd_error, 688);
AT(grd_error, name, 4);
AT(grd_error, message, 36);
AT(grd_error, may_have_run, 548);
AT(grd_error, need, 560);
AT(grd_error, used, 600);
SIZE(grd_receipt, 56);
AT(grd_receipt, crc32c, 4);
AT(grd_receipt, path, 8);
AT(grd_receipt, ttl, 12);
AT(grd_receipt, length, 16);
SIZE(grd_completion, 800);
AT(grd_completion, code, 20);
AT(grd_completion, receipt, 24);
AT(grd_completion, error, 80);
SIZE(grd_key, 16);
SIZE(grd_key_result, 40);
SIZE(grd_window, 24);
AT(grd_connect_options, timeout_ms, 24);
AT(grd_client_info, value_bytes_max, 88);
AT(grd_region_options, label, 24);
AT(grd_set_options, deadline_ms, 16);
AT(grd_set_options, ttl_ms, 24);
AT(grd_get_options, no_retry, 9);
AT(grd_get_options, deadline_ms, 16);
AT(grd_transfer, operation, 8);
AT(grd_transfer, no_retry, 21);
AT(grd_transfer, key, 24);
AT(grd_transfer, window, 40);
AT(grd_transfer, ticket, 88);
_Static_assert(GRD_OPERATION_SET == 1 && GRD_OPERATION_GET == 2 && GRD_TTL_UNKNOWN == 3 && GRD_PATH_TCP == 2 &&
                   GRD_CHECKSUM_KNOWN == 2 && GRD_REGION_MAP == 4 && GRD_ERR_BUSY == -1 && GRD_ERR_PROTOCOL == -66,
               "constants changed");

int main(void)
{
    grd_client *client = NULL;
    struct grd_error error;
    struct grd_connect_options options = {.struct_size = sizeof(options), .socket_path = "/nonexistent/socket"};
    int good = grd_connect(&options, &client, &error) == GRD_ERR_NO_DAEMON && client == NULL &&
               grd_submit(NULL, NULL, 0, NULL, NULL) == GRD_ERR_INVALID_ARGUMENT &&
               strcmp(grd_version(), GRD_VERSION_STRING) == 0;

    printf("1..1\n%s 1 - header in C, version %ld\n", good ? "ok" : "not ok", __STDC_VERSION__);
    return good ? 0 : 1;
}
