/* The object behind a connection over RDMA, where it is missing or another one: the reason is told each time. */
#include <stdlib.h>
#include <string.h>

#include "daemon/valkey/rdma/object.h"
#include "tests/unit/unit_main.h"

static void expect(const char *object, const char *words)
{
    char why[RDMA_WHY_BYTES];

    setenv("GLIDE_RDMAD_VALKEY_RDMA_OBJECT", object, 1);
    for (int i = 0; i < 2; i++) {
        why[0] = '\0';
        ck_assert_ptr_null(rdma_object_find(why));
        ck_assert_msg(strstr(why, words) != NULL, "%s", why);
        ck_assert_ptr_nonnull(strstr(why, "RDMA to Valkey is not available"));
    }
}

START_TEST(missing)
{
    expect("/nonexistent/object.so", "/nonexistent/object.so: cannot open shared object file");
}
END_TEST

START_TEST(another_object)
{
    expect(getenv("WRONG_OBJECT"), "undefined symbol: " RDMA_OPS_SYMBOL);
}
END_TEST

UNIT_MAIN("RDMA object", missing, another_object)
