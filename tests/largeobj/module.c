/*
 * A Valkey module that serves BLOB.* for tests and demos of glide-rdmad: see README.md.
 */
#include "blob.h"
#include "commands.h"
#include "fabric.h"
#include "session.h"
#include "settings.h"
#include "stats.h"
#include "transfer.h"

#define MODULE_NAME "largeobj"
#define MODULE_VERSION 1

int ValkeyModule_OnLoad(struct vm_ctx *ctx, struct vm_string **argv, int argc);

static void client_changed(struct vm_ctx *ctx, struct vm_event event, uint64_t subevent, void *data)
{
    const struct vm_client_info *client = data;

    if (subevent != VM_SUBEVENT_CLIENT_DISCONNECTED)
        return;
    session_drop(client->id);
    transfer_client_left(client->id);
}

static void shutting_down(struct vm_ctx *ctx, struct vm_event event, uint64_t subevent, void *data)
{
    fabric_stop();
}

__attribute__((visibility("default"))) int ValkeyModule_OnLoad(struct vm_ctx *ctx, struct vm_string **argv, int argc)
{
    const struct vm_event client_change = {VM_EVENT_CLIENT_CHANGE, 1};
    const struct vm_event shutdown = {VM_EVENT_SHUTDOWN, 1};

    if (module_api_init(ctx, MODULE_NAME, MODULE_VERSION) != 0)
        return VM_ERR;
    if (argc > 0) {
        vm_Log(ctx, "warning", "largeobj: no load arguments are taken, use largeobj.* parameters");
        return VM_ERR;
    }
    if (settings_register(ctx) != VM_OK || blob_type_register(ctx) != VM_OK || commands_register(ctx) != VM_OK ||
        vm_RegisterInfoFunc(ctx, stats_info) != VM_OK ||
        vm_SubscribeToServerEvent(ctx, client_change, client_changed) != VM_OK ||
        vm_SubscribeToServerEvent(ctx, shutdown, shutting_down) != VM_OK)
        return VM_ERR;
    transfer_init(ctx);
    /* Last, so that a failure above leaves no thread behind. */
    fabric_start(ctx);
    vm_Log(ctx, "notice", "largeobj: test module for glide-rdmad, not for production");
    return VM_OK;
}
