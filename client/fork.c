/*
 * A forked child must not speak on its parent's session, nor keep it open: the daemon would not see the parent's
 * death. So the child's fork handler closes the copies of the descriptors at once. Every client remembers the
 * generation of its process; one comparison of it, without a lock, tells a child that the client is not its own.
 */
#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "client/private.h"
#include "client/queue.h"

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static LIST_HEAD(, grd_client) clients = LIST_HEAD_INITIALIZER(clients);
static LIST_HEAD(, grd_queue) queues = LIST_HEAD_INITIALIZER(queues);
static atomic_uint generation;
static pthread_once_t handlers_once = PTHREAD_ONCE_INIT;
static bool handlers_installed;

unsigned fork_generation(void)
{
    return atomic_load_explicit(&generation, memory_order_relaxed);
}

void fork_lock(void)
{
    pthread_mutex_lock(&list_lock);
}

void fork_unlock(void)
{
    pthread_mutex_unlock(&list_lock);
}

static void close_once(int *fd)
{
    if (*fd >= 0) {
        close(*fd);
    }
    *fd = -1;
}

static void in_child(void)
{
    grd_client *client;
    grd_queue *queue;

    atomic_fetch_add_explicit(&generation, 1, memory_order_relaxed);
    LIST_FOREACH(client, &clients, entry) {
        close_once(&client->socket);
        close_once(&client->pidfd);
        close_once(&client->bell);
    }
    LIST_FOREACH(queue, &queues, fork_entry) {
        close_once(&queue->epoll);
        close_once(&queue->event);
        close_once(&queue->timer);
    }
    LIST_INIT(&clients);
    LIST_INIT(&queues);
    fork_unlock();
}

static void install(void)
{
    handlers_installed = pthread_atfork(fork_lock, fork_unlock, in_child) == 0;
}

int fork_watch(grd_client *client)
{
    int code;

    pthread_once(&handlers_once, install);
    if (!handlers_installed) {
        return GRD_ERR_NO_MEMORY;
    }
    fork_lock();
    client->generation = fork_generation();
    client->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (client->bell >= 0) {
        LIST_INSERT_HEAD(&clients, client, entry);
    }
    code = client->bell >= 0 ? 0 : GRD_ERR_NO_MEMORY;
    fork_unlock();
    return code;
}

void fork_unwatch(grd_client *client)
{
    fork_lock();
    if (client->generation == fork_generation()) {
        LIST_REMOVE(client, entry);
        close_once(&client->socket);
        close_once(&client->pidfd);
        close_once(&client->bell);
    }
    fork_unlock();
}

static void close_queue(grd_queue *queue)
{
    close_once(&queue->timer);
    close_once(&queue->event);
    close_once(&queue->epoll);
}

static bool open_queue(grd_queue *queue)
{
    struct epoll_event event = {.events = EPOLLIN};

    queue->event = queue->timer = -1;
    queue->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (queue->epoll < 0) {
        return false;
    }
    queue->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    queue->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    return queue->event >= 0 && queue->timer >= 0 &&
           epoll_ctl(queue->epoll, EPOLL_CTL_ADD, queue->event, &event) == 0 &&
           epoll_ctl(queue->epoll, EPOLL_CTL_ADD, queue->timer, &event) == 0;
}

/* The queue's client is watched: the handlers are installed. */
int fork_watch_queue(grd_queue *queue)
{
    int os_errno = 0;

    fork_lock();
    if (open_queue(queue)) {
        LIST_INSERT_HEAD(&queues, queue, fork_entry);
    } else {
        os_errno = errno;
        close_queue(queue);
    }
    fork_unlock();
    return os_errno;
}

void fork_unwatch_queue(grd_queue *queue)
{
    fork_lock();
    if (!client_forked(queue->client)) {
        LIST_REMOVE(queue, fork_entry);
        close_queue(queue);
    }
    fork_unlock();
}
