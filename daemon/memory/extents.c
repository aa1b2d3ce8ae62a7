#include "daemon/memory/extents.h"

#include <stddef.h>

void extents_init(struct extents *extents)
{
    extents->root = NULL;
    extents->seed = 0x9e3779b9u;
}

/* xorshift32: the priorities only need to be independent of the windows that clients choose. */
static uint32_t next_priority(struct extents *extents)
{
    uint32_t x = extents->seed;
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    return extents->seed = x;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static void update(struct extent *node)
{
    node->max_end = node->end;
    node->max_writer_end = node->writes ? node->end : 0;
    const struct extent *const children[] = {node->left, node->right};
    for (int i = 0; i < 2; i++) {
        if (children[i] == NULL)
            continue;
        node->max_end = larger(node->max_end, children[i]->max_end);
        node->max_writer_end = larger(node->max_writer_end, children[i]->max_writer_end);
    }
}

/* Several readers may have one start: their addresses tell them apart. */
static bool before(const struct extent *a, const struct extent *b)
{
    return a->start != b->start ? a->start < b->start : (uintptr_t)a < (uintptr_t)b;
}

static struct extent *join(struct extent *left, struct extent *right)
{
    if (left == NULL || right == NULL)
        return left != NULL ? left : right;
    if (left->priority > right->priority) {
        left->right = join(left->right, right);
        update(left);
        return left;
    }
    right->left = join(left, right->left);
    update(right);
    return right;
}

static void split(struct extent *root, const struct extent *pivot, struct extent **left, struct extent **right)
{
    if (root == NULL) {
        *left = *right = NULL;
        return;
    }
    if (before(root, pivot)) {
        split(root->right, pivot, &root->right, right);
        *left = root;
    } else {
        split(root->left, pivot, left, &root->left);
        *right = root;
    }
    update(root);
}

static struct extent *insert(struct extent *root, struct extent *added)
{
    if (root == NULL || added->priority > root->priority) {
        split(root, added, &added->left, &added->right);
        root = added;
    } else if (before(added, root)) {
        root->left = insert(root->left, added);
    } else {
        root->right = insert(root->right, added);
    }
    update(root);
    return root;
}

static struct extent *erase(struct extent *root, const struct extent *gone)
{
    if (root == NULL)
        return NULL;
    if (root == gone)
        return join(root->left, root->right);
    if (before(gone, root))
        root->left = erase(root->left, gone);
    else
        root->right = erase(root->right, gone);
    update(root);
    return root;
}

void extents_add(struct extents *extents, struct extent *extent)
{
    extent->left = extent->right = NULL;
    extent->priority = next_priority(extents);
    update(extent);
    extents->root = insert(extents->root, extent);
}

void extents_remove(struct extents *extents, struct extent *extent)
{
    extents->root = erase(extents->root, extent);
}

const struct extent *extents_conflict(const struct extents *extents, uint64_t start, uint64_t end, bool writes)
{
    const struct extent *at = extents->root;
    while (at != NULL) {
        /* Whether something to the left reaches past `start`: if it does, it begins before `at` and the answer, if
         * there is one at all, is found there; if nothing does, nothing there can conflict. */
        uint64_t reach = at->left == NULL ? 0 : writes ? at->left->max_end : at->left->max_writer_end;
        if ((writes || at->writes) && at->start < end && start < at->end)
            return at;
        if (reach > start)
            at = at->left;
        else if (at->start < end)
            at = at->right;
        else
            return NULL;
    }
    return NULL;
}
