/// Convex polygons in the plane: hulls, areas of intersections, parts of edges.
///
/// Corners run counterclockwise (x to the right, y upwards); polygon_orient makes them so.
#ifndef DIT_HOST_MMCV_POLYGON_H
#define DIT_HOST_MMCV_POLYGON_H

#include <stdbool.h>
#include <stdint.h>

struct point {
  double x, y;
};

#define POLYGON_MOST 32

struct polygon {
  struct point at[POLYGON_MOST];
  int from[POLYGON_MOST];  ///< of a hull: number of the point that is this corner
  int count;
};

/// Half of the signed sum: positive when the corners run counterclockwise.
double polygon_area(const struct polygon *polygon);
void polygon_orient(struct polygon *polygon);
/// `count` corners of 2 `count` numbers, oriented.
void polygon_read(struct polygon *polygon, const double *numbers, int count);
/// The corners of a box (x, y, w, h, angle).
void polygon_from_box(struct polygon *polygon, double x, double y, double w, double h, double angle);
/// The corners of the convex hull of up to 16 points.
void polygon_hull(struct polygon *hull, const struct point *points, int count);
/// Area of the intersection of two convex polygons.
double polygon_overlap(const struct polygon *a, const struct polygon *b);
/// The part from t0 to t1 of the way from a to b that lies in the polygon; false when there is none.
bool polygon_cut_segment(const struct polygon *polygon, struct point a, struct point b, double *t0, double *t1);

#endif
