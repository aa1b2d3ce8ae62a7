/*
 * exists, del, info, expire: one question about a list of keys.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/commands.h"
#include "client/ctl/keys.h"
#include "client/ctl/report.h"
#include "client/ctl/text.h"
#include "proto/limits.h"

/* What is asked, and the words for its answers. */
struct question {
    enum ctl_exit (*ask)(const struct options *options, grd_client *client, struct grd_key *keys, size_t count,
                         struct grd_key_result *results);
    const char *member;    /* of an entry in JSON */
    const char *yes, *no;  /* for people */
};

static enum ctl_exit answered(const struct options *options, int code, const struct grd_error *error)
{
    return code == 0 ? CTL_OK : report_error(options->command->name, error);
}

static enum ctl_exit ask_exists(const struct options *options, grd_client *client, struct grd_key *keys, size_t count,
                                struct grd_key_result *results)
{
    struct grd_error error;

    return answered(options, grd_exists(client, keys, count, results, &error), &error);
}

static enum ctl_exit ask_del(const struct options *options, grd_client *client, struct grd_key *keys, size_t count,
                             struct grd_key_result *results)
{
    struct grd_error error;

    return answered(options, grd_delete(client, keys, count, results, &error), &error);
}

static enum ctl_exit ask_info(const struct options *options, grd_client *client, struct grd_key *keys, size_t count,
                              struct grd_key_result *results)
{
    struct grd_error error;

    return answered(options, grd_info(client, keys, count, results, &error), &error);
}

static enum ctl_exit ask_expire(const struct options *options, grd_client *client, struct grd_key *keys, size_t count,
                                struct grd_key_result *results)
{
    uint64_t ttl_ms = options_seconds(options->words[1]);
    struct grd_error error;

    return answered(options, grd_expire(client, keys, count, ttl_ms, results, &error), &error);
}

static json_t *entry_json(const struct question *question, const struct grd_key *key,
                          const struct grd_key_result *result)
{
    json_t *entry = key_json(key);

    if (result->code != 0) {
        json_object_set_new(entry, "error", json_pack("{s:i,s:s}", "code", result->code, "message",
                                                      grd_strerror(result->code)));
        return entry;
    }
    json_object_set_new(entry, question->member, json_boolean(result->found));
    if (question->ask == ask_info && result->found) {
        json_object_set_new(entry, "length", json_integer((json_int_t)result->length));
        if (result->has_crc32c) {
            json_object_set_new(entry, "crc32c", json_integer(result->crc32c));
        }
    }
    return entry;
}

static void print_info(const char *name, const struct grd_key_result *result)
{
    char size[TEXT_NUMBER_BYTES];

    printf("%s: %" PRIu64 " bytes (%s)", name, result->length, text_bytes(size, result->length));
    if (result->has_crc32c) {
        printf(", crc32c 0x%08" PRIx32, result->crc32c);
    }
    putchar('\n');
}

static void print_entry(const struct question *question, const struct grd_key *key,
                        const struct grd_key_result *result)
{
    char *name = key_text(key);

    if (result->code != 0) {
        printf("%s: error: %s\n", name, grd_strerror(result->code));
    } else if (question->ask == ask_info && result->found) {
        print_info(name, result);
    } else {
        printf("%s: %s\n", name, result->found ? question->yes : question->no);
    }
    free(name);
}

/* One key is an object, several are a list. */
static void print(const struct options *options, const struct question *question, const struct grd_key *keys,
                  size_t count, const struct grd_key_result *results)
{
    json_t *entries = options->json ? need_memory(json_array()) : NULL;

    for (size_t i = 0; i < count && !options->quiet; i++) {
        if (options->json) {
            json_array_append_new(entries, entry_json(question, &keys[i], &results[i]));
        } else {
            print_entry(question, &keys[i], &results[i]);
        }
    }
    if (options->json && options->command->words_max >= 0) {
        print_json(json_incref(json_array_get(entries, 0)));
    } else if (options->json) {
        print_json(need_memory(json_pack("{s:O}", "keys", entries)));
    }
    json_decref(entries);
}

static enum ctl_exit all_found(const struct grd_key_result *results, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!results[i].found) {
            return CTL_FALSE;
        }
    }
    return CTL_OK;
}

/* Has every key an answer that failed with the whole request? Then there is nothing to print. */
static bool nothing_came(const struct grd_key_result *results, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (results[i].code == 0) {
            return false;
        }
    }
    return true;
}

static enum ctl_exit ask(const struct options *options, const struct question *question, struct grd_key *keys,
                         size_t count)
{
    struct grd_key_result *results = need_memory(calloc(count, sizeof(*results)));
    grd_client *client;
    enum ctl_exit status = connect_client(options, &client);

    if (status == CTL_OK) {
        status = question->ask(options, client, keys, count, results);
        if (status == CTL_OK || !nothing_came(results, count)) {
            print(options, question, keys, count, results);
        }
        if (status == CTL_OK) {
            status = all_found(results, count);
        }
        grd_close(client);
    }
    free(results);
    return status;
}

static enum ctl_exit run(const struct options *options, const struct question *question, size_t count)
{
    struct grd_key *keys = need_memory(calloc(count, sizeof(*keys)));
    enum ctl_exit status = CTL_OK;

    for (size_t i = 0; i < count && status == CTL_OK; i++) {
        status = key_parse(options, options->words[i], &keys[i]);
    }
    if (status == CTL_OK) {
        status = ask(options, question, keys, count);
    }
    for (size_t i = 0; i < count; i++) {
        key_free(&keys[i]);
    }
    free(keys);
    return status;
}

enum ctl_exit command_exists(const struct options *options)
{
    static const struct question question = {ask_exists, "exists", "exists", "missing"};

    return run(options, &question, (size_t)options->word_count);
}

enum ctl_exit command_del(const struct options *options)
{
    static const struct question question = {ask_del, "deleted", "deleted", "missing"};

    return run(options, &question, (size_t)options->word_count);
}

enum ctl_exit command_info(const struct options *options)
{
    static const struct question question = {ask_info, "found", "", "missing"};

    return run(options, &question, 1);
}

enum ctl_exit command_expire(const struct options *options)
{
    static const struct question question = {ask_expire, "expired", "expires", "missing"};

    if (options_seconds(options->words[1]) == 0) {
        return options_misuse("a time to live has 1 to %" PRIu64 " whole seconds, not '%s'", PROTO_TTL_MS_MAX / 1000,
                              options->words[1]);
    }
    return run(options, &question, 1);
}
