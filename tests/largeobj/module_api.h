/*
 * The part of the Valkey module API that this module uses: types, constants and one list of functions.
 *
 * Valkey does not install a header for modules, so these are our own declarations of the published interface.
 * Functions are looked up by name once, in OnLoad, by module_api_init(); the pointers do not change afterwards.
 * Unless noted, a function may be called on the main thread only. From other threads: vm_UnblockClient,
 * vm_EventLoopAddOneShot.
 */
#ifndef LARGEOBJ_MODULE_API_H
#define LARGEOBJ_MODULE_API_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define VM_OK 0
#define VM_ERR 1
#define VM_API_VERSION 1

#define VM_KEY_READ 1
#define VM_KEY_WRITE 2
#define VM_KEYTYPE_EMPTY 0

#define VM_CTX_LUA (1 << 0)
#define VM_CTX_MULTI (1 << 1)
#define VM_CTX_LOADING (1 << 13)
#define VM_CTX_DENY_BLOCKING (1 << 21)

#define VM_CONFIG_DEFAULT 0u
#define VM_CONFIG_IMMUTABLE (1u << 0)
#define VM_CONFIG_MEMORY (1u << 7)

#define VM_EVENT_CLIENT_CHANGE 4u
#define VM_EVENT_SHUTDOWN 5u
#define VM_SUBEVENT_CLIENT_DISCONNECTED 1u

#define VM_TYPE_METHODS_VERSION 5u

struct vm_ctx;
struct vm_string;
struct vm_key;
struct vm_io;
struct vm_digest;
struct vm_type;
struct vm_blocked;
struct vm_command;
struct vm_info;

struct vm_event {
    uint64_t id;
    uint64_t data_version;
};

/* The data of a client-change event. */
struct vm_client_info {
    uint64_t version;
    uint64_t flags;
    uint64_t id;
    char addr[46];
    uint16_t port;
    uint16_t db;
};

typedef int vm_command_fn(struct vm_ctx *ctx, struct vm_string **argv, int argc);
typedef void vm_event_fn(struct vm_ctx *ctx, struct vm_event event, uint64_t subevent, void *data);
typedef void vm_free_fn(struct vm_ctx *ctx, void *private_data);
typedef void vm_info_fn(struct vm_info *info, int for_crash_report);
typedef void vm_oneshot_fn(void *data);

typedef int vm_get_bool_fn(const char *name, void *private_data);
typedef int vm_set_bool_fn(const char *name, int value, void *private_data, struct vm_string **err);
typedef long long vm_get_number_fn(const char *name, void *private_data);
typedef int vm_set_number_fn(const char *name, long long value, void *private_data, struct vm_string **err);
typedef struct vm_string *vm_get_string_fn(const char *name, void *private_data);
typedef int vm_set_string_fn(const char *name, struct vm_string *value, void *private_data, struct vm_string **err);
typedef int vm_apply_fn(struct vm_ctx *ctx, void *private_data, struct vm_string **err);

/* Members after `free` are optional; the whole table must be there because its version promises it. */
struct vm_type_methods {
    uint64_t version;
    void *(*rdb_load)(struct vm_io *io, int encoding_version);
    void (*rdb_save)(struct vm_io *io, void *value);
    void (*aof_rewrite)(struct vm_io *io, struct vm_string *key, void *value);
    size_t (*mem_usage)(const void *value);
    void (*digest)(struct vm_digest *digest, void *value);
    void (*free)(void *value);
    int (*aux_load)(struct vm_io *io, int encoding_version, int when);
    void (*aux_save)(struct vm_io *io, int when);
    int aux_save_triggers;
    size_t (*free_effort)(struct vm_string *key, const void *value);
    void (*unlink)(struct vm_string *key, const void *value);
    void *(*copy)(struct vm_string *from, struct vm_string *to, const void *value);
    int (*defrag)(void *defrag, struct vm_string *key, void **value);
    void *mem_usage2;
    void *free_effort2;
    void *unlink2;
    void *copy2;
    void *aux_save2;
};

/* X(return type, name, parameters) */
#define VM_FUNCTIONS(X)                                                                                               \
    X(int, SetModuleAttribs, (struct vm_ctx *, const char *name, int version, int api_version))                       \
    X(int, IsModuleNameBusy, (const char *name))                                                                      \
    X(int, CreateCommand, (struct vm_ctx *, const char *name, vm_command_fn *, const char *flags, int first_key,      \
                           int last_key, int key_step))                                                               \
    X(struct vm_command *, GetCommand, (struct vm_ctx *, const char *name))                                           \
    X(int, AddACLCategory, (struct vm_ctx *, const char *name))                                                       \
    X(int, SetCommandACLCategories, (struct vm_command *, const char *categories))                                    \
    X(struct vm_type *, CreateDataType, (struct vm_ctx *, const char *name, int encoding_version,                     \
                                         struct vm_type_methods *))                                                   \
    X(int, RegisterBoolConfig, (struct vm_ctx *, const char *name, int value, unsigned int flags, vm_get_bool_fn *,   \
                                vm_set_bool_fn *, vm_apply_fn *, void *private_data))                                 \
    X(int, RegisterNumericConfig, (struct vm_ctx *, const char *name, long long value, unsigned int flags,            \
                                   long long min, long long max, vm_get_number_fn *, vm_set_number_fn *,              \
                                   vm_apply_fn *, void *private_data))                                                \
    X(int, RegisterStringConfig, (struct vm_ctx *, const char *name, const char *value, unsigned int flags,           \
                                  vm_get_string_fn *, vm_set_string_fn *, vm_apply_fn *, void *private_data))         \
    X(int, RegisterEnumConfig, (struct vm_ctx *, const char *name, int value, unsigned int flags, const char **names, \
                                const int *values, int count, vm_get_bool_fn *, vm_set_bool_fn *, vm_apply_fn *,      \
                                void *private_data))                                                                  \
    X(int, LoadConfigs, (struct vm_ctx *))                                                                            \
    X(int, SubscribeToServerEvent, (struct vm_ctx *, struct vm_event, vm_event_fn *))                                 \
    X(int, RegisterInfoFunc, (struct vm_ctx *, vm_info_fn *))                                                         \
    X(int, InfoAddSection, (struct vm_info *, const char *name))                                                      \
    X(int, InfoAddFieldULongLong, (struct vm_info *, const char *name, unsigned long long value))                     \
    X(void, Log, (struct vm_ctx *, const char *level, const char *format, ...))                                       \
    X(int, GetContextFlags, (struct vm_ctx *))                                                                        \
    X(unsigned long long, GetClientId, (struct vm_ctx *))                                                             \
    X(int, GetSelectedDb, (struct vm_ctx *))                                                                          \
    X(int, SelectDb, (struct vm_ctx *, int db))                                                                       \
    X(struct vm_ctx *, GetDetachedThreadSafeContext, (struct vm_ctx *))                                               \
    X(int, WrongArity, (struct vm_ctx *))                                                                             \
    X(int, ReplyWithError, (struct vm_ctx *, const char *text))                                                       \
    X(int, ReplyWithSimpleString, (struct vm_ctx *, const char *text))                                                \
    X(int, ReplyWithLongLong, (struct vm_ctx *, long long value))                                                     \
    X(int, ReplyWithNull, (struct vm_ctx *))                                                                          \
    X(int, ReplyWithArray, (struct vm_ctx *, long length))                                                            \
    X(int, ReplyWithStringBuffer, (struct vm_ctx *, const char *buf, size_t len))                                     \
    X(const char *, StringPtrLen, (const struct vm_string *, size_t *len))                                            \
    X(struct vm_string *, CreateString, (struct vm_ctx *, const char *buf, size_t len))                               \
    X(void, FreeString, (struct vm_ctx *, struct vm_string *))                                                        \
    X(const char *, GetMyClusterID, (void))                                                                           \
    X(void, Free, (void *))                                                                                           \
    X(struct vm_key *, OpenKey, (struct vm_ctx *, struct vm_string *name, int mode))                                  \
    X(void, CloseKey, (struct vm_key *))                                                                              \
    X(int, KeyType, (struct vm_key *))                                                                                \
    X(struct vm_type *, ModuleTypeGetType, (struct vm_key *))                                                         \
    X(void *, ModuleTypeGetValue, (struct vm_key *))                                                                  \
    X(int, ModuleTypeSetValue, (struct vm_key *, struct vm_type *, void *value))                                      \
    X(void, SaveUnsigned, (struct vm_io *, uint64_t value))                                                           \
    X(uint64_t, LoadUnsigned, (struct vm_io *))                                                                       \
    X(void, SaveStringBuffer, (struct vm_io *, const char *buf, size_t len))                                          \
    X(char *, LoadStringBuffer, (struct vm_io *, size_t *len))                                                        \
    X(void, EmitAOF, (struct vm_io *, const char *command, const char *format, ...))                                  \
    X(void, DigestAddStringBuffer, (struct vm_digest *, const char *buf, size_t len))                                 \
    X(void, DigestEndSequence, (struct vm_digest *))                                                                  \
    X(struct vm_blocked *, BlockClient, (struct vm_ctx *, vm_command_fn *reply, vm_command_fn *timeout,               \
                                         vm_free_fn *free_private_data, long long timeout_ms))                        \
    X(int, UnblockClient, (struct vm_blocked *, void *private_data))                                                  \
    X(void *, GetBlockedClientPrivateData, (struct vm_ctx *))                                                         \
    X(int, EventLoopAddOneShot, (vm_oneshot_fn *, void *data))                                                        \
    X(int, DeauthenticateAndCloseClient, (struct vm_ctx *, uint64_t client_id))

#define VM_DECLARE(ret, name, params) extern ret(*vm_##name) params;
VM_FUNCTIONS(VM_DECLARE)
#undef VM_DECLARE

/* Resolves every function above and gives the module its name. Returns 0, -ENOSYS when the server lacks one of
 * them (it is older than 8.0), or -EBUSY when a module of that name is loaded. */
int module_api_init(struct vm_ctx *ctx, const char *name, int version);

#endif
