// The public header alone, in C++, with the library behind it.
#include <glide-rdmad.h>

#include <cstddef>
#include <cstdio>
#include <cstring>

int main()
{
    grd_client *client = nullptr;
    grd_region *region = nullptr;
    grd_error error;
    grd_connect_options options = {};
    grd_window window = {region, 0, GRD_WHOLE};
    grd_receipt receipt;
    grd_transfer transfer = {};
    grd_completion completion;
    std::size_t count = 1;

    transfer.struct_size = sizeof(transfer);
    transfer.operation = GRD_OPERATION_GET;
    options.struct_size = sizeof(options);
    options.socket_path = "/nonexistent/socket";
    bool good = grd_checksum("123456789", 9) == 0xE3069283U && grd_connect(&options, &client, &error) != 0 &&
                error.code == GRD_ERR_NO_DAEMON && client == nullptr &&
                grd_get("key", 3, window, nullptr, &receipt, nullptr) == GRD_ERR_INVALID_ARGUMENT &&
                grd_submit(nullptr, &transfer, 1, &count, nullptr) == GRD_ERR_INVALID_ARGUMENT && count == 0 &&
                grd_reap(nullptr, &completion, 1, 0, &count, nullptr) == GRD_ERR_INVALID_ARGUMENT &&
                std::strcmp(grd_version(), GRD_VERSION_STRING) == 0;
    grd_close(client);
    std::printf("1..1\n%s 1 - header in C++\n", good ? "ok" : "not ok");
    return good ? 0 : 1;
}
