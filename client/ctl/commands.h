/*
 * What the program can do. Each says itself what went wrong and returns the exit status.
 */
#ifndef GRD_CTL_COMMANDS_H
#define GRD_CTL_COMMANDS_H

#include "client/ctl/options.h"

/* Values. */
enum ctl_exit command_put(const struct options *options);
enum ctl_exit command_get(const struct options *options);

/* Keys. */
enum ctl_exit command_exists(const struct options *options);
enum ctl_exit command_del(const struct options *options);
enum ctl_exit command_info(const struct options *options);
enum ctl_exit command_expire(const struct options *options);

/* The daemon, for its clients and, with --admin-socket, for operators. */
enum ctl_exit command_status(const struct options *options);

/* The admin socket. */
enum ctl_exit command_clients(const struct options *options);
enum ctl_exit command_regions(const struct options *options);
enum ctl_exit command_transfers(const struct options *options);
enum ctl_exit command_users(const struct options *options);
enum ctl_exit command_nodes(const struct options *options);
enum ctl_exit command_metrics(const struct options *options);
enum ctl_exit command_log_level(const struct options *options);
enum ctl_exit command_reload(const struct options *options);
enum ctl_exit command_drain(const struct options *options);

/* Is all well, and how fast is it? */
enum ctl_exit command_doctor(const struct options *options);
enum ctl_exit command_bench(const struct options *options);

#endif
