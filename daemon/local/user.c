#include "daemon/local/user.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/local/session.h"

static void free_if_unused(struct user *user)
{
    if (user->sessions > 0 || user->memory.refs > 0 || user->keys > 0)
        return;
    pace_remember(user);
    schedule_user_end(user);
    transfer_user_end(&user->service->transfers, &user->transfers);
    HASH_DEL(user->service->users, user);
    free(user);
}

static void account_released(struct memory_account *account)
{
    free_if_unused((struct user *)((char *)account - offsetof(struct user, memory)));
}

static void account_relieved(struct memory_account *account)
{
    struct user *user = (struct user *)((char *)account - offsetof(struct user, memory));
    struct session *session;
    TAILQ_FOREACH(session, &user->service->sessions, link) {
        if (session->user == user)
            session_read_on(session);
    }
}

struct user *user_enter(struct service *service, const struct config_socket *socket, uid_t uid)
{
    struct user_key key;
    memset(&key, 0, sizeof key); /* padding is hashed too */
    key.socket = socket;
    key.uid = uid;
    struct user *user = NULL;
    HASH_FIND(hh, service->users, &key, sizeof key, user);
    if (user == NULL) {
        user = calloc(1, sizeof *user);
        if (user == NULL)
            return NULL;
        memcpy(&user->key, &key, sizeof key);
        user->service = service;
        user->id = ++service->next_user;
        policy_without_sections(service->config, &user->policy);
        memory_account_init(&user->memory, account_released, account_relieved);
        transfer_user_init(&user->transfers);
        schedule_user_init(user);
        pace_recall(user);
        HASH_ADD(hh, service->users, key, sizeof user->key, user);
    }
    user->sessions++;
    return user;
}

void user_leave(struct user *user)
{
    user->sessions--;
    if (user->sessions == 0) /* nobody resolves it anew when the configuration is read again */
        policy_without_sections(user->service->config, &user->policy);
    free_if_unused(user);
}

bool user_take_keys(struct user *user, size_t count)
{
    size_t all = user->service->keys;
    if (user->keys + count > NODE_COMMANDS - all)
        return false;
    user->keys += (unsigned)count;
    user->service->keys += (unsigned)count;
    return true;
}

void user_key_ended(struct user *user)
{
    user->keys--;
    user->service->keys--;
    free_if_unused(user);
}
