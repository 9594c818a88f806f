/// Convex polygons (see polygon.h).
#include "polygon.h"

#include <math.h>
#include <stdlib.h>

/// Twice the signed area of the triangle o, a, b.
static double cross(struct point o, struct point a, struct point b) {
  return (a.x - o.x) * (b.y - o.y) - (b.x - o.x) * (a.y - o.y);
}

double polygon_area(const struct polygon *polygon) {
  double sum = 0;
  for (int i = 1; i + 1 < polygon->count; i++) {
    sum += cross(polygon->at[0], polygon->at[i], polygon->at[i + 1]);
  }
  return sum / 2;
}

void polygon_orient(struct polygon *polygon) {
  if (polygon_area(polygon) >= 0) {
    return;
  }
  for (int i = 0, k = polygon->count - 1; i < k; i++, k--) {
    const struct point point = polygon->at[i];
    polygon->at[i] = polygon->at[k];
    polygon->at[k] = point;
  }
}

void polygon_read(struct polygon *polygon, const double *numbers, int count) {
  polygon->count = count;
  for (int i = 0; i < count; i++) {
    polygon->at[i] = (struct point){numbers[2 * i], numbers[2 * i + 1]};
  }
  polygon_orient(polygon);
}

void polygon_from_box(struct polygon *polygon, double x, double y, double w, double h, double angle) {
  static const int signs[4][2] = {{-1, -1}, {1, -1}, {1, 1}, {-1, 1}};
  const double c = cos(angle) / 2, s = sin(angle) / 2;
  polygon->count = 4;
  for (int i = 0; i < 4; i++) {
    const double dx = signs[i][0] * w, dy = signs[i][1] * h;
    polygon->at[i] = (struct point){x + dx * c - dy * s, y + dx * s + dy * c};
  }
  polygon_orient(polygon);
}

struct numbered {
  struct point point;
  int number;
};

static int compare_points(const void *left, const void *right) {
  const struct numbered *a = left, *b = right;
  if (a->point.x != b->point.x) {
    return a->point.x < b->point.x ? -1 : 1;
  }
  if (a->point.y != b->point.y) {
    return a->point.y < b->point.y ? -1 : 1;
  }
  return a->number - b->number;
}

/// Put a point on a chain of the hull that began at corner `first`.
static void push_corner(struct polygon *hull, const struct numbered *next, int first) {
  while (hull->count > first + 1 && cross(hull->at[hull->count - 2], hull->at[hull->count - 1], next->point) <= 0) {
    hull->count--;
  }
  hull->at[hull->count] = next->point;
  hull->from[hull->count++] = next->number;
}

void polygon_hull(struct polygon *hull, const struct point *points, int count) {
  struct numbered sorted[POLYGON_MOST / 2];
  for (int i = 0; i < count; i++) {
    sorted[i] = (struct numbered){points[i], i};
  }
  qsort(sorted, (size_t)count, sizeof sorted[0], compare_points);
  hull->count = 0;
  for (int i = 0; i < count; i++) {
    push_corner(hull, &sorted[i], 0);
  }
  const int upper = hull->count - 1;
  for (int i = count - 2; i >= 0; i--) {
    push_corner(hull, &sorted[i], upper);
  }
  hull->count -= hull->count > 1;  // the first corner came again
}

/// Keep what lies to the left of the line from a to b.
static void cut(struct polygon *polygon, struct point a, struct point b) {
  struct polygon kept = {.count = 0};
  for (int i = 0; i < polygon->count; i++) {
    const struct point p = polygon->at[i], q = polygon->at[(i + 1) % polygon->count];
    const double here = cross(a, b, p), there = cross(a, b, q);
    if (here >= 0 && kept.count < POLYGON_MOST) {
      kept.at[kept.count++] = p;
    }
    if (((here > 0 && there < 0) || (here < 0 && there > 0)) && kept.count < POLYGON_MOST) {
      const double part = here / (here - there);
      kept.at[kept.count++] = (struct point){p.x + part * (q.x - p.x), p.y + part * (q.y - p.y)};
    }
  }
  *polygon = kept;
}

double polygon_overlap(const struct polygon *a, const struct polygon *b) {
  struct polygon rest = *a;
  for (int i = 0; i < b->count && rest.count > 0; i++) {
    cut(&rest, b->at[i], b->at[(i + 1) % b->count]);
  }
  return rest.count > 2 ? polygon_area(&rest) : 0;
}

bool polygon_cut_segment(const struct polygon *polygon, struct point a, struct point b, double *t0, double *t1) {
  *t0 = 0;
  *t1 = 1;
  for (int i = 0; i < polygon->count; i++) {
    const struct point p = polygon->at[i], q = polygon->at[(i + 1) % polygon->count];
    const double here = cross(p, q, a), there = cross(p, q, b);
    if (here < 0 && there < 0) {
      return false;
    }
    if (here < 0) {
      *t0 = fmax(*t0, here / (here - there));
    } else if (there < 0) {
      *t1 = fmin(*t1, here / (here - there));
    }
  }
  return *t0 < *t1;
}
