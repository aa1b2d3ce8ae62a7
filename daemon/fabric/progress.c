#include "daemon/fabric/progress.h"

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "daemon/base/log.h"

#define EVENTS_A_WAIT 64

enum { COMMAND_ADD = 1, COMMAND_REMOVE = 2, COMMAND_QUEUED = 4 };

TAILQ_HEAD(due_members, progress_member);

struct fabric_progress {
    const struct fabric_ops *ops;
    uv_async_t async;
    unsigned removing; /* removals asked for and not delivered; loop only */

    pthread_t thread;
    int epoll_fd, command_fd;

    /* No lock: the loop must not wait for the thread, nor the thread for the loop. */
    atomic_bool stopping;
    struct handoff commands; /* by the loop */
    struct handoff removed;  /* by the thread */

    /* the thread's */
    struct due_members due;
};

static struct progress_member *member_of(struct handoff_node *node)
{
    return (struct progress_member *)((char *)node - offsetof(struct progress_member, node));
}

/* Commands, on the loop's thread */

static void send_command(struct fabric_progress *progress, struct progress_member *member, unsigned command)
{
    uint64_t one = 1;

    if ((atomic_fetch_or(&member->command, command | COMMAND_QUEUED) & COMMAND_QUEUED) == 0) {
        handoff_add(&progress->commands, &member->node);
    }
    while (write(progress->command_fd, &one, sizeof(one)) < 0 && errno == EINTR) {
    }
}

void progress_add(struct fabric_progress *progress, struct progress_member *member)
{
    atomic_store(&member->command, 0);
    member->is_due = false;
    member->watched = false;
    send_command(progress, member, COMMAND_ADD);
}

void progress_remove(struct fabric_progress *progress, struct progress_member *member)
{
    if (progress->removing++ == 0) {
        uv_ref((uv_handle_t *)&progress->async);
    }
    send_command(progress, member, COMMAND_REMOVE);
}

static void deliver_removed(uv_async_t *async)
{
    struct fabric_progress *progress = async->data;
    struct handoff_node *node = handoff_take(&progress->removed), *next;

    for (; node != NULL; node = next) {
        struct progress_member *member = member_of(node);
        next = node->next;
        if (--progress->removing == 0) {
            uv_unref((uv_handle_t *)&progress->async);
        }
        member->removed(member);
    }
}

/* The thread */

static void set_due(struct fabric_progress *progress, struct progress_member *member, bool due)
{
    if (due && !member->is_due) {
        TAILQ_INSERT_TAIL(&progress->due, member, due);
    } else if (!due && member->is_due) {
        TAILQ_REMOVE(&progress->due, member, due);
    }
    member->is_due = due;
}

static void watch(struct fabric_progress *progress, struct progress_member *member)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = member};

    if (epoll_ctl(progress->epoll_fd, EPOLL_CTL_ADD, member->wait_fd, &event) != 0) {
        log_error("fabric: a completion queue cannot be watched: %s; its lane's transfers will run into their time "
                  "limits", uv_strerror(-errno));
        return;
    }
    member->watched = true;
    set_due(progress, member, true);
}

static void unwatch(struct fabric_progress *progress, struct progress_member *member)
{
    if (member->watched) {
        epoll_ctl(progress->epoll_fd, EPOLL_CTL_DEL, member->wait_fd, NULL);
    }
    member->watched = false;
    set_due(progress, member, false);
}

/* The member may be freed as soon as it is on the list. */
static void hand_back(struct fabric_progress *progress, struct progress_member *member)
{
    handoff_add(&progress->removed, &member->node);
    uv_async_send(&progress->async);
}

/* False: the thread is to end. */
static bool obey(struct fabric_progress *progress)
{
    struct handoff_node *node, *next;
    bool stopping;
    uint64_t count;

    while (read(progress->command_fd, &count, sizeof(count)) < 0 && errno == EINTR) {
    }
    stopping = atomic_load(&progress->stopping);
    for (node = handoff_take(&progress->commands); node != NULL; node = next) {
        struct progress_member *member = member_of(node);
        next = node->next; /* a command that comes from now on queues the member again */
        unsigned command = atomic_exchange(&member->command, 0);
        if ((command & COMMAND_REMOVE) != 0) {
            unwatch(progress, member);
            hand_back(progress, member);
        } else {
            watch(progress, member);
        }
    }
    return !stopping;
}

/* Moves what there is to move. Afterwards the member is due again, or its descriptor will say when. */
static void progress_member(struct fabric_progress *progress, struct progress_member *member)
{
    int result = progress->ops->endpoint_progress(member->endpoint);

    if (result >= 0) {
        result = progress->ops->endpoint_try_wait(member->endpoint);
        if (result >= 0) {
            set_due(progress, member, false);
            return;
        }
        if (result == -EAGAIN) {
            return;
        }
    }
    log_error("fabric: a completion queue failed: %s (%d); its lane's transfers will run into their time limits",
              progress->ops->text(result), result);
    unwatch(progress, member);
}

static void progress_due(struct fabric_progress *progress)
{
    struct progress_member *member, *next;

    for (member = TAILQ_FIRST(&progress->due); member != NULL; member = next) {
        next = TAILQ_NEXT(member, due);
        progress_member(progress, member);
    }
}

static void *run(void *argument)
{
    struct fabric_progress *progress = argument;
    struct epoll_event events[EVENTS_A_WAIT];

    for (;;) {
        bool commanded = false;
        int n = epoll_wait(progress->epoll_fd, events, EVENTS_A_WAIT, TAILQ_EMPTY(&progress->due) ? -1 : 0);

        for (int i = 0; i < n; i++) {
            if (events[i].data.ptr == NULL) {
                commanded = true;
            } else {
                set_due(progress, events[i].data.ptr, true);
            }
        }
        if (commanded && !obey(progress)) {
            return NULL;
        }
        progress_due(progress);
    }
}

/* Start and end */

static int open_descriptors(struct fabric_progress *progress)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};

    progress->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    progress->command_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (progress->epoll_fd < 0 || progress->command_fd < 0 ||
        epoll_ctl(progress->epoll_fd, EPOLL_CTL_ADD, progress->command_fd, &event) != 0) {
        return -errno;
    }
    return 0;
}

static void close_descriptors(struct fabric_progress *progress)
{
    if (progress->epoll_fd >= 0) {
        close(progress->epoll_fd);
    }
    if (progress->command_fd >= 0) {
        close(progress->command_fd);
    }
}

/* Signals are the loop's. */
static int start_thread(struct fabric_progress *progress)
{
    sigset_t all, before;
    int error;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(&progress->thread, NULL, run, progress);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error == 0) {
        pthread_setname_np(progress->thread, "grd-progress");
    }
    return -error;
}

static void closed(uv_handle_t *handle)
{
    struct fabric_progress *progress = handle->data;

    close_descriptors(progress);
    free(progress);
}

struct fabric_progress *progress_start(uv_loop_t *loop, const struct fabric_ops *ops)
{
    struct fabric_progress *progress = calloc(1, sizeof(*progress));

    if (progress == NULL) {
        return NULL;
    }
    progress->ops = ops;
    TAILQ_INIT(&progress->due);
    if (open_descriptors(progress) != 0 || uv_async_init(loop, &progress->async, deliver_removed) != 0) {
        close_descriptors(progress);
        free(progress);
        return NULL;
    }
    progress->async.data = progress;
    uv_unref((uv_handle_t *)&progress->async);
    if (start_thread(progress) != 0) {
        uv_close((uv_handle_t *)&progress->async, closed);
        return NULL;
    }
    return progress;
}

void progress_stop(struct fabric_progress *progress)
{
    uint64_t one = 1;

    atomic_store(&progress->stopping, true);
    while (write(progress->command_fd, &one, sizeof(one)) < 0 && errno == EINTR) {
    }
    pthread_join(progress->thread, NULL);
    uv_close((uv_handle_t *)&progress->async, closed);
}
