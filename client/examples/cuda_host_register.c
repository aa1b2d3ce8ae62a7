/*
 * Memory that both a GPU and the server's NIC reach: a region, registered with CUDA as well. The copy between device
 * and region runs at full speed, because the pages are pinned; the value then goes to the server from the same pages.
 * CUDA needs a mapping, not a file, so the order is: make the region, then register its memory with CUDA; at the end
 * the reverse. Exit status 77: there is no GPU.
 */
#include <cuda_runtime.h>
#include <glide-rdmad.h>
#include <stdio.h>

#define BYTES ((uint64_t)16 << 20)

static int failed(cudaError_t status)
{
    if (status != cudaSuccess) {
        fprintf(stderr, "CUDA: %s\n", cudaGetErrorString(status));
    }
    return status != cudaSuccess;
}

/* Copies from the device into the region, then stores. Nothing overlaps: the copy is over before the set begins. */
static int store(grd_region *region, const void *device, struct grd_error *error)
{
    struct grd_window window;
    int code = grd_region_window(region, 0, BYTES, &window, error);

    if (failed(cudaMemcpy(grd_region_data(region), device, BYTES, cudaMemcpyDeviceToHost))) {
        return 1;
    }
    return code == 0 ? grd_set("example:cuda", 12, window, NULL, NULL, error) : code;
}

static int use(grd_region *region, struct grd_error *error)
{
    void *device = NULL;
    int code;

    if (failed(cudaHostRegister(grd_region_data(region), grd_region_size(region), cudaHostRegisterPortable))) {
        return 1;
    }
    code = failed(cudaMalloc(&device, BYTES)) || failed(cudaMemset(device, 'g', BYTES)) ? 1
                                                                                      : store(region, device, error);
    cudaFree(device);
    cudaHostUnregister(grd_region_data(region));
    return code;
}

int main(void)
{
    grd_client *client = NULL;
    grd_region *region = NULL;
    struct grd_error error = {0};
    int devices = 0, code;

    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        fprintf(stderr, "no GPU\n");
        return 77;
    }
    code = grd_connect(NULL, &client, &error);
    if (code == 0) {
        code = grd_region_create(client, BYTES, NULL, &region, &error);
    }
    if (code == 0) {
        code = use(region, &error);
    }
    if (code < 0) {
        fprintf(stderr, "%s: %s\n", error.name, error.message);
    }
    grd_region_close(region, NULL, NULL);
    grd_close(client);
    return code == 0 ? 0 : 1;
}
