#include "stats.h"

#include <stdio.h>

#include "endpoint.h"
#include "fabric.h"
#include "session.h"

struct stats stats;

void stats_info(struct vm_info *info, int for_crash_report)
{
    const struct {
        const char *name;
        unsigned long long value;
    } fields[] = {
        {"rdma_sessions", session_count()},
        {"hellos_total", atomic_load(&stats.hellos)},
        {"rdma_reads_total", atomic_load(&stats.reads)},
        {"rdma_writes_total", atomic_load(&stats.writes)},
        {"rdma_read_bytes_total", atomic_load(&stats.read_bytes)},
        {"rdma_write_bytes_total", atomic_load(&stats.write_bytes)},
        {"rdma_read_errors", atomic_load(&stats.read_errors)},
        {"rdma_write_errors", atomic_load(&stats.write_errors)},
        {"rdma_timeouts", atomic_load(&stats.timeouts)},
        {"crc_mismatches", atomic_load(&stats.crc_mismatches)},
        {"set_finalize_stale", atomic_load(&stats.stale_sets)},
        {"transfers", atomic_load(&stats.transfers)},
        {"num_objects", atomic_load(&stats.objects)},
        {"endpoints", fabric_endpoint_count()},
    };
    unsigned long long in_flight = 0;

    if (vm_InfoAddSection(info, "") != VM_OK)
        return;
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
        vm_InfoAddFieldULongLong(info, fields[i].name, fields[i].value);
    for (unsigned int i = 0; i < fabric_endpoint_count(); i++) {
        struct endpoint *endpoint = fabric_endpoint(i);
        char name[64];

        snprintf(name, sizeof(name), "endpoint%u_operations", i);
        vm_InfoAddFieldULongLong(info, name, atomic_load(&endpoint->operations));
        snprintf(name, sizeof(name), "endpoint%u_in_flight_max", i);
        vm_InfoAddFieldULongLong(info, name, atomic_load(&endpoint->in_flight_max));
        in_flight += atomic_load(&endpoint->load);
    }
    vm_InfoAddFieldULongLong(info, "in_flight", in_flight);
}
