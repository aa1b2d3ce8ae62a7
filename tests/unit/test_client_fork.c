/* A forked child: its copy of the socket is closed at once, every call answers an error, and the parent goes on. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/private.h"
#include "client_fake.h"
#include "unit_main.h"

#define SIZE ((uint64_t)1 << 16)

struct state {
    _Atomic int in_flight, release;
};

/* Answers a get late, everything else at once, until the client ends. */
static void script(struct fake *fake)
{
    struct state *state = fake->argument;
    struct fake_request request = {0};

    fake_greet(fake);
    while (fake_receive(fake, &request)) {
        if (fake_is(&request, PROTO_METHOD_REGION_REGISTER)) {
            fake_register(fake, &request);
        } else if (fake_is(&request, PROTO_METHOD_TRANSFER_GET)) {
            state->in_flight = 1;
            while (state->release == 0) {
                fake_sleep_ms(1);
            }
            fake_answer(fake, request.parsed.id, json_pack("{s:b, s:i}", "found", 0, "length", 0));
        } else if (fake_is(&request, PROTO_METHOD_REGION_CLOSE)) {
            fake_answer(fake, request.parsed.id, json_pack("{s:b}", "memory_released", 1));
        } else {
            fake_answer(fake, request.parsed.id, json_pack("{s:[{s:b}]}", "keys", "exists", 1));
        }
    }
}

/* What the child finds wrong, as its exit status. */
static int child(grd_client *client, grd_region *region, const int fds[2])
{
    struct grd_window window = {.region = region, .length = SIZE};
    struct grd_client_info info = {.struct_size = sizeof(info)};
    struct grd_key key = {"k", 1};
    struct grd_key_result result;
    struct grd_receipt receipt;
    struct grd_error error;
    grd_region *other;

    if (fcntl(fds[0], F_GETFD) >= 0 || fcntl(fds[1], F_GETFD) >= 0) {
        return 1;
    }
    if (grd_set("k", 1, window, NULL, NULL, &error) != GRD_ERR_FORKED ||
        grd_get("k", 1, window, NULL, &receipt, &error) != GRD_ERR_FORKED) {
        return 2;
    }
    if (grd_exists(client, &key, 1, &result, &error) != GRD_ERR_FORKED || result.code != GRD_ERR_FORKED ||
        grd_client_info(client, &info, &error) != GRD_ERR_FORKED) {
        return 3;
    }
    if (grd_region_create(client, SIZE, NULL, &other, &error) != GRD_ERR_FORKED || other != NULL ||
        grd_region_register(client, grd_region_fd(region), 0, SIZE, NULL, &other, &error) != GRD_ERR_FORKED) {
        return 4;
    }
    if (strcmp(grd_region_data(region), "of the parent") != 0) {
        return 5;
    }
    if (grd_region_close(region, NULL, &error) != 0) {
        return 6;
    }
    grd_close(client);
    return 0;
}

static void *get(void *argument)
{
    struct grd_window window = {.region = argument, .offset = SIZE / 2, .length = SIZE / 2};
    struct grd_receipt receipt;
    struct grd_error error;

    grd_get("k", 1, window, NULL, &receipt, &error);
    return error.code == 0 ? argument : NULL;
}

/* The fork happens while another thread has a call in flight, and perhaps holds a lock. */
START_TEST(child_gets_errors_parent_goes_on)
{
    struct state state = {0};
    struct grd_key key = {"k", 1};
    struct grd_key_result result;
    struct grd_error error;
    struct fake fake;
    grd_client *client;
    grd_region *region;
    pthread_t thread;
    void *returned;
    int fds[2], status;

    fake_start(&fake, script, &state);
    client = fake_connect(&fake);
    region = fake_region(client, SIZE);
    strcpy(grd_region_data(region), "of the parent");
    fds[0] = client->socket;
    fds[1] = client->pidfd;
    ck_assert_int_eq(pthread_create(&thread, NULL, get, region), 0);
    while (state.in_flight == 0) {
        fake_sleep_ms(1);
    }
    /* A child that is forked in the worst moment must not wait for this lock. */
    pthread_mutex_lock(&client->lock);
    pid_t pid = fork();
    if (pid == 0) {
        _exit(child(client, region, fds));
    }
    pthread_mutex_unlock(&client->lock);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(WIFEXITED(status), "status %#x", (unsigned)status);
    ck_assert_int_eq(WEXITSTATUS(status), 0);
    state.release = 1;
    pthread_join(thread, &returned);
    ck_assert_ptr_eq(returned, region);
    ck_assert_int_eq(grd_exists(client, &key, 1, &result, &error), 0);
    ck_assert_int_eq(grd_region_close(region, NULL, &error), 0);
    grd_close(client);
    fake_stop(&fake);
}
END_TEST

/* Clients that were closed before the fork, and ones made in the child, are no business of the handler. */
START_TEST(child_can_connect_itself)
{
    struct state state = {.release = 1};
    struct fake fake;
    grd_client *client;
    int status;

    fake_start(&fake, script, &state);
    client = fake_connect(&fake);
    grd_close(client);
    fake_stop(&fake);
    pid_t pid = fork();
    if (pid == 0) {
        struct fake own;
        struct grd_key key = {"k", 1};
        struct grd_key_result result;

        fake_start(&own, script, &state);
        client = fake_connect(&own);
        int code = grd_exists(client, &key, 1, &result, NULL);
        grd_close(client);
        fake_stop(&own);
        _exit(code == 0 && result.found ? 0 : 1);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %#x", (unsigned)status);
}
END_TEST

UNIT_MAIN("client_fork", child_gets_errors_parent_goes_on, child_can_connect_itself)
