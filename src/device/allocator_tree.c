/// Free blocks ordered by (size, address): a treap whose priorities are derived from the metadata's own addresses.
///
/// Invariant: a block's left and right are its children; nothing is allocated, so nothing can fail. Depends on:
/// allocator_impl. The allocator's lock is held throughout.
#include "device/allocator_impl.h"

static bool is_less(const struct dit_allocator_block *a, const struct dit_allocator_block *b) {
  return a->size != b->size ? a->size < b->size : (uintptr_t)a->address < (uintptr_t)b->address;
}

/// Metadata addresses are distinct, and multiplying by an odd number keeps them so.
static uint64_t get_priority(const struct dit_allocator_block *block) {
  uint64_t mixed = (uint64_t)(uintptr_t)block * UINT64_C(0x9E3779B97F4A7C15);
  return mixed ^ (mixed >> 32);
}

void dit_allocator_tree_insert(struct dit_allocator_block **link, struct dit_allocator_block *block) {
  uint64_t priority = get_priority(block);
  while (*link && get_priority(*link) >= priority) {
    link = is_less(block, *link) ? &(*link)->left : &(*link)->right;
  }
  struct dit_allocator_block *rest = *link, **less = &block->left, **more = &block->right;
  *link = block;
  while (rest) {
    if (is_less(rest, block)) {
      *less = rest;
      less = &rest->right;
      rest = rest->right;
    } else {
      *more = rest;
      more = &rest->left;
      rest = rest->left;
    }
  }
  *less = *more = NULL;
}

void dit_allocator_tree_remove(struct dit_allocator_block **link, struct dit_allocator_block *block) {
  while (*link != block) {
    link = is_less(block, *link) ? &(*link)->left : &(*link)->right;
  }
  struct dit_allocator_block *left = block->left, *right = block->right;
  while (left && right) {
    if (get_priority(left) >= get_priority(right)) {
      *link = left;
      link = &left->right;
      left = left->right;
    } else {
      *link = right;
      link = &right->left;
      right = right->left;
    }
  }
  *link = left ? left : right;
}

struct dit_allocator_block *dit_allocator_tree_find(struct dit_allocator_block *root, size_t size) {
  struct dit_allocator_block *best = NULL;
  while (root) {
    if (root->size >= size) {
      best = root;
      root = root->left;
    } else {
      root = root->right;
    }
  }
  return best;
}
