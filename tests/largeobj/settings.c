#include "settings.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define KIB 1024LL
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)
#define HOUR_MS (3600 * 1000LL)

struct settings settings;
struct faults faults;

struct number {
    const char *name;
    long long *value;
    long long def;
    long long min;
    long long max;
    unsigned int flags;
};

static const struct number numbers[] = {
    {"chunk-size", &settings.chunk_size, 8 * MIB, 4096, GIB, VM_CONFIG_MEMORY},
    {"max-object-size", &settings.max_object_size, 512 * MIB, 1, 4 * GIB, VM_CONFIG_MEMORY},
    {"fabric-max-in-flight", &settings.max_in_flight, 64, 1, 64, VM_CONFIG_DEFAULT},
    {"op-timeout-ms", &settings.op_timeout_ms, 10000, 1, HOUR_MS, VM_CONFIG_DEFAULT},
    {"eagain-timeout-ms", &settings.eagain_timeout_ms, 1000, 1, HOUR_MS, VM_CONFIG_DEFAULT},
    {"test-delay-before-transfer-ms", &faults.delay_before_transfer_ms, 0, 0, HOUR_MS, VM_CONFIG_DEFAULT},
    {"test-delay-between-chunks-ms", &faults.delay_between_chunks_ms, 0, 0, HOUR_MS, VM_CONFIG_DEFAULT},
    {"test-delay-before-reply-ms", &faults.delay_before_reply_ms, 0, 0, HOUR_MS, VM_CONFIG_DEFAULT},
    {"test-fail-operation", &faults.fail_operation, 0, 0, 1LL << 32, VM_CONFIG_DEFAULT},
    {"test-error-after-bytes", &faults.error_after_bytes, 0, 0, 4 * GIB, VM_CONFIG_MEMORY},
    {"test-error-delay-ms", &faults.error_delay_ms, 0, 0, HOUR_MS, VM_CONFIG_DEFAULT},
    {"test-get-reply", &faults.get_reply, 0, 0, GET_REPLY_LAST, VM_CONFIG_DEFAULT},
    {"test-set-reply", &faults.set_reply, 0, 0, SET_REPLY_LAST, VM_CONFIG_DEFAULT},
    {"test-refuse-hello", &faults.refuse_hello, 0, 0, 1LL << 32, VM_CONFIG_DEFAULT},
    {"test-hello-garbage", &faults.hello_garbage, 0, 0, HELLO_LAST, VM_CONFIG_DEFAULT},
    {"test-answer-error-count", &faults.answer_error_count, 0, 0, 1LL << 32, VM_CONFIG_DEFAULT},
};

static const struct {
    const char *name;
    long long *value;
} booleans[] = {
    {"block-timeout-callback", &settings.timeout_callback},
    {"test-error-while-running", &faults.error_while_running},
    {"test-drop-while-running", &faults.drop_while_running},
    {"test-drop-before-reply", &faults.drop_before_reply},
    {"test-never-answer", &faults.never_answer},
    {"test-shuffle", &faults.shuffle},
    {"test-wrong-crc", &faults.wrong_crc},
    {"test-get-null", &faults.get_null},
};

/* Text parameters are kept as C strings; the server's string for CONFIG GET is remade on every change, because its
 * getter must hand out one that lives on. */
struct text {
    const char *name;
    char *value;
    size_t size;
    const char *def;
    unsigned int flags;
    struct vm_string *shown;
};

static struct text texts[] = {
    {"fabric-interfaces", settings.interfaces, sizeof(settings.interfaces), "lo", VM_CONFIG_IMMUTABLE, NULL},
    {"test-journal", settings.journal, sizeof(settings.journal), "", VM_CONFIG_DEFAULT, NULL},
    {"test-answer-error", faults.answer_error, sizeof(faults.answer_error), "", VM_CONFIG_DEFAULT, NULL},
};

static long long get_number(const char *name, void *private_data)
{
    return *(long long *)private_data;
}

static int set_number(const char *name, long long value, void *private_data, struct vm_string **err)
{
    *(long long *)private_data = value;
    return VM_OK;
}

static int get_bool(const char *name, void *private_data)
{
    return *(long long *)private_data != 0;
}

static int set_bool(const char *name, int value, void *private_data, struct vm_string **err)
{
    *(long long *)private_data = value != 0;
    return VM_OK;
}

static int get_enum(const char *name, void *private_data)
{
    return *(int *)private_data;
}

static int set_enum(const char *name, int value, void *private_data, struct vm_string **err)
{
    *(int *)private_data = value;
    return VM_OK;
}

static struct vm_string *get_text(const char *name, void *private_data)
{
    return ((struct text *)private_data)->shown;
}

static int set_text(const char *name, struct vm_string *value, void *private_data, struct vm_string **err)
{
    struct text *text = private_data;
    size_t len;
    const char *s = vm_StringPtrLen(value, &len);

    if (len >= text->size || memchr(s, 0, len) || memchr(s, '\n', len) || memchr(s, '\r', len)) {
        static const char why[] = "text too long, or with control characters";

        *err = vm_CreateString(NULL, why, sizeof(why) - 1);
        return VM_ERR;
    }
    memcpy(text->value, s, len);
    text->value[len] = 0;
    if (text->shown)
        vm_FreeString(NULL, text->shown);
    text->shown = vm_CreateString(NULL, s, len);
    return VM_OK;
}

int settings_register(struct vm_ctx *ctx)
{
    static const char *provider_names[] = {"Emulated", "Verbs"};
    static const int provider_values[] = {PROVIDER_EMULATED, PROVIDER_VERBS};
    static const char *name_set_names[] = {"current", "old"};
    static const int name_set_values[] = {NAMES_CURRENT, NAMES_OLD};
    int failed = VM_OK;

    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        const struct number *n = &numbers[i];

        failed |= vm_RegisterNumericConfig(ctx, n->name, n->def, n->flags, n->min, n->max, get_number, set_number,
                                           NULL, n->value);
    }
    for (size_t i = 0; i < sizeof(booleans) / sizeof(booleans[0]); i++)
        failed |= vm_RegisterBoolConfig(ctx, booleans[i].name, false, VM_CONFIG_DEFAULT, get_bool, set_bool, NULL,
                                        booleans[i].value);
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        failed |= vm_RegisterStringConfig(ctx, texts[i].name, texts[i].def, texts[i].flags, get_text, set_text, NULL,
                                          &texts[i]);
    failed |= vm_RegisterEnumConfig(ctx, "fabric-provider", PROVIDER_EMULATED, VM_CONFIG_IMMUTABLE, provider_names,
                                    provider_values, 2, get_enum, set_enum, NULL, &settings.provider);
    failed |= vm_RegisterEnumConfig(ctx, "command-names", NAMES_CURRENT, VM_CONFIG_IMMUTABLE, name_set_names,
                                    name_set_values, 2, get_enum, set_enum, NULL, &settings.names);
    failed |= vm_LoadConfigs(ctx);
    return failed ? VM_ERR : VM_OK;
}
