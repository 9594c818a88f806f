/// Convex hulls of nine points in mmcv: smallest rectangles, overlaps with quadrilaterals; corners by angle.
///
/// min_area_polygons: the smallest rectangle around nine points has a side along an edge of their hull; its corners are
/// those at (most x, least y), (least, least), (least, most), (most, most) in the axes of the edge, whose angle is
/// taken from 0 up to a right angle. convex_iou: common area of hull and quadrilateral by that of their union.
/// convex_giou: the generalised overlap I / U - (C - U) / C, C the area of the hull of all thirteen points, after its
/// gradient with respect to the nine points: an edge's end moves the area by the outward normal times the integral of
/// its share along the part of the edge that counts. diff_iou_rotated_sort_vertices: positions of the valid vertices by
/// their angle around the origin from the positive x axis on, the first one again, then a vertex from number 8 on that
/// is not valid (that fills all where fewer than three are valid); vertices that coincide count once. Floating dtypes,
/// in double.
#include <math.h>

#include "call.h"
#include "polygon.h"

#define POINTS 9

static void read_hull(const double *numbers, struct point *points, struct polygon *hull) {
  for (int i = 0; i < POINTS; i++) {
    points[i] = (struct point){numbers[2 * i], numbers[2 * i + 1]};
  }
  polygon_hull(hull, points, POINTS);
}

/// The rectangle along a direction (cosine, sine): its least and most coordinates; its area.
static double find_rectangle(const struct polygon *hull, double c, double s, double *box) {
  box[0] = box[1] = INFINITY;
  box[2] = box[3] = -INFINITY;
  for (int i = 0; i < hull->count; i++) {
    const double x = c * hull->at[i].x + s * hull->at[i].y, y = c * hull->at[i].y - s * hull->at[i].x;
    box[0] = fmin(box[0], x);
    box[1] = fmin(box[1], y);
    box[2] = fmax(box[2], x);
    box[3] = fmax(box[3], y);
  }
  return (box[2] - box[0]) * (box[3] - box[1]);
}

static void find_smallest(const double *numbers, double *out) {
  static const int corners[4][2] = {{2, 1}, {0, 1}, {0, 3}, {2, 3}};
  struct point points[POINTS];
  struct polygon hull;
  double least = INFINITY, best[4] = {0, 0, 0, 0}, cosine = 1, sine = 0;
  read_hull(numbers, points, &hull);
  for (int i = 0; i < hull.count; i++) {
    const struct point p = hull.at[i], q = hull.at[(i + 1) % hull.count];
    const double turn = atan2(q.y - p.y, q.x - p.x), angle = turn - floor(turn / (M_PI / 2)) * (M_PI / 2);
    const double c = cos(angle), s = sin(angle);
    double box[4];
    const double area = find_rectangle(&hull, c, s, box);
    if (area < least) {
      least = area;
      cosine = c;
      sine = s;
      for (int k = 0; k < 4; k++) {
        best[k] = box[k];
      }
    }
  }
  for (int k = 0; k < 4; k++) {
    const double x = best[corners[k][0]], y = best[corners[k][1]];
    out[2 * k] = cosine * x - sine * y;
    out[2 * k + 1] = sine * x + cosine * y;
  }
}

static void smallest_sets(void *argument, int64_t begin, int64_t end) {
  const struct call *call = argument;
  for (int64_t i = begin; i < end; i++) {
    find_smallest((const double *)call_data(call, 0) + i * 2 * POINTS, (double *)call_data(call, 1) + i * 8);
  }
}
static diopiError_t run_smallest(struct call *call) {
  call_loop(call, call_size(call, 'n'), 2000, smallest_sets);
  return diopiSuccess;
}

/// Nine points are 18 numbers.
static diopiError_t check_points(struct call *call, char letter, int64_t wanted) {
  CALL_CHECK(call, call_size(call, letter) == wanted, "a tensor has %lld numbers per row; it must have %lld",
             (long long)call_size(call, letter), (long long)wanted);
  return diopiSuccess;
}

diopiError_t diopiMinAreaPolygonsMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t polygons,
                                      diopiConstTensorHandle_t pointsets) {
  struct call call;
  CALL_BEGIN(&call, ctx);
  CALL_IN(&call, pointsets, "d:np");
  CALL_OUT(&call, polygons, "d:n8");
  FRAME_TRY(check_points(&call, 'p', 2 * POINTS));
  return call_run(&call, run_smallest);
}

// Overlaps with quadrilaterals: 0 sets, 1 quadrilaterals, 2 result

static void meet_sets(void *argument, int64_t begin, int64_t end) {
  const struct call *call = argument;
  const int64_t many = call_size(call, 'm');
  for (int64_t i = begin; i < end; i++) {
    struct point points[POINTS];
    struct polygon hull, quad;
    read_hull((const double *)call_data(call, 0) + i / many * 2 * POINTS, points, &hull);
    polygon_read(&quad, (const double *)call_data(call, 1) + i % many * 8, 4);
    const double common = polygon_overlap(&hull, &quad);
    ((double *)call_data(call, 2))[i] = common / (polygon_area(&hull) + polygon_area(&quad) - common);
  }
}
static diopiError_t run_meet(struct call *call) {
  call_loop(call, call_numel(call, 2), 2000, meet_sets);
  return diopiSuccess;
}

diopiError_t diopiConvexIouMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t ious, diopiConstTensorHandle_t pointsets,
                                diopiConstTensorHandle_t polygons) {
  struct call call;
  CALL_BEGIN(&call, ctx);
  CALL_IN(&call, pointsets, "d:np");
  CALL_IN(&call, polygons, "d:m8");
  CALL_OUT(&call, ious, "d:nm");
  FRAME_TRY(check_points(&call, 'p', 2 * POINTS));
  return call_run(&call, run_meet);
}

/// Add `factor` times the gradient of the area left of the edge's part from t0 to t1.
static void add_edge(const struct polygon *polygon, int i, double t0, double t1, double factor, double *grad) {
  const int next = (i + 1) % polygon->count;
  const double dx = polygon->at[next].x - polygon->at[i].x, dy = polygon->at[next].y - polygon->at[i].y;
  const double end = (t1 * t1 - t0 * t0) / 2 * factor, start = (t1 - t0) * factor - end;
  if (polygon->from[i] < POINTS) {
    grad[2 * polygon->from[i]] += dy * start;
    grad[2 * polygon->from[i] + 1] -= dx * start;
  }
  if (polygon->from[next] < POINTS) {
    grad[2 * polygon->from[next]] += dy * end;
    grad[2 * polygon->from[next] + 1] -= dx * end;
  }
}

static void find_giou(const double *numbers, const double *corners, double *out) {
  struct point points[POINTS + 4];
  struct polygon hull, quad, whole;
  read_hull(numbers, points, &hull);
  polygon_read(&quad, corners, 4);
  for (int i = 0; i < 4; i++) {
    points[POINTS + i] = quad.at[i];
  }
  polygon_hull(&whole, points, POINTS + 4);
  const double common = polygon_overlap(&hull, &quad), all = polygon_area(&whole);
  const double united = polygon_area(&hull) + polygon_area(&quad) - common;
  const double by_united = 1 / all - common / (united * united);
  for (int i = 0; i < 2 * POINTS; i++) {
    out[i] = 0;
  }
  for (int i = 0; i < hull.count; i++) {
    double t0, t1;
    add_edge(&hull, i, 0, 1, by_united, out);
    if (polygon_cut_segment(&quad, hull.at[i], hull.at[(i + 1) % hull.count], &t0, &t1)) {
      add_edge(&hull, i, t0, t1, 1 / united - by_united, out);
    }
  }
  for (int i = 0; i < whole.count; i++) {
    add_edge(&whole, i, 0, 1, -united / (all * all), out);
  }
  out[2 * POINTS] = common / united - (all - united) / all;
}

static void giou_sets(void *argument, int64_t begin, int64_t end) {
  const struct call *call = argument;
  for (int64_t i = begin; i < end; i++) {
    find_giou((const double *)call_data(call, 0) + i * 2 * POINTS, (const double *)call_data(call, 1) + i * 8,
              (double *)call_data(call, 2) + i * (2 * POINTS + 1));
  }
}
static diopiError_t run_giou(struct call *call) {
  call_loop(call, call_size(call, 'n'), 4000, giou_sets);
  return diopiSuccess;
}

diopiError_t diopiConvexGiouMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t output,
                                 diopiConstTensorHandle_t pointsets, diopiConstTensorHandle_t polygons) {
  struct call call;
  CALL_BEGIN(&call, ctx);
  CALL_IN(&call, pointsets, "d:np");
  CALL_IN(&call, polygons, "d:n8");
  CALL_OUT(&call, output, "d:nq");
  FRAME_TRY(check_points(&call, 'p', 2 * POINTS));
  FRAME_TRY(check_points(&call, 'q', 2 * POINTS + 1));
  return call_run(&call, run_giou);
}

// Vertices by angle: 0 vertices (b, n, m, 2), 1 mask (b, n, m), 2 num_valid (b, n), 3 result (b, n, 9)

#define CORNERS 8  ///< the first ones are corners of the boxes, the others intersections

static double get_angle(const double *vertex) {
  const double angle = atan2(vertex[1], vertex[0]);
  return angle < 0 ? angle + 2 * M_PI : angle;
}

/// Is there an equal vertex among those chosen?
static bool is_repeated(const double *vertices, const int64_t *chosen, int64_t count, int64_t k) {
  for (int64_t i = 0; i < count; i++) {
    if (fabs(vertices[2 * chosen[i]] - vertices[2 * k]) < 1e-8 &&
        fabs(vertices[2 * chosen[i] + 1] - vertices[2 * k + 1]) < 1e-8) {
      return true;
    }
  }
  return false;
}

static void sort_polygon(const double *vertices, const int64_t *mask, int64_t vertex_count, int64_t valid,
                         int64_t *out) {
  int64_t count = 0, pad = 0;
  for (int64_t k = vertex_count - 1; k >= CORNERS; k--) {
    pad = mask[k] ? pad : k;
  }
  for (int64_t k = 0; valid >= 3 && k < vertex_count; k++) {
    if (!mask[k] || count >= valid || is_repeated(vertices, out, count, k)) {
      continue;
    }
    int64_t at = count++;
    for (; at > 0 && get_angle(vertices + 2 * out[at - 1]) > get_angle(vertices + 2 * k); at--) {
      out[at] = out[at - 1];
    }
    out[at] = k;
  }
  for (int64_t i = count; i <= CORNERS; i++) {
    out[i] = count > 0 && i == count ? out[0] : pad;
  }
}

static void sort_polygons(void *argument, int64_t begin, int64_t end) {
  const struct call *call = argument;
  const int64_t many = call_size(call, 'm');
  for (int64_t i = begin; i < end; i++) {
    sort_polygon((const double *)call_data(call, 0) + i * many * 2, (const int64_t *)call_data(call, 1) + i * many,
                 many, ((const int64_t *)call_data(call, 2))[i], (int64_t *)call_data(call, 3) + i * (CORNERS + 1));
  }
}
static diopiError_t run_sort(struct call *call) {
  call_loop(call, call_size(call, 'b') * call_size(call, 'n'), 1000, sort_polygons);
  return diopiSuccess;
}

diopiError_t diopiDiffIouRotatedSortVerticesMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t *out,
                                                 diopiConstTensorHandle_t vertices, diopiConstTensorHandle_t mask,
                                                 diopiConstTensorHandle_t num_valid) {
  struct call call;
  diopiTensorHandle_t made = NULL;
  CALL_BEGIN(&call, ctx);
  CALL_CHECK(&call, out, "'out' is NULL; it must be a place for the result's handle");
  CALL_IN(&call, vertices, "d:bnm2");
  CALL_IN(&call, mask, "m:bnm");
  CALL_IN(&call, num_valid, "i:bn");
  call_limit(&call, 2, 0, CORNERS);
  const int64_t sizes[3] = {call_size(&call, 'b'), call_size(&call, 'n'), CORNERS + 1};
  FRAME_TRY(call_make(&call, "out", &made, DIT_DTYPE_I32, 3, sizes, 'i'));
  FRAME_TRY(call_run(&call, run_sort));
  *out = made;
  return diopiSuccess;
}
