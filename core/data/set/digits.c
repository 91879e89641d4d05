/* SPDX-License-Identifier: Apache-2.0
 *
 * Draws digits. Each point of the glyph's strokes is moved a little at random. The strokes are
 * then bent by a wave, rotated, sheared, scaled and shifted, and drawn with a round pen, and noise is added. For the drawing,
 * the smallest squared distance to a stroke is computed for each pixel, so that crossing strokes join smoothly. */
#include <math.h>
#include <string.h>

#include "core/data/set/image_set.h"
#include "strata/philox.h"

/* ---- the strokes of each digit in several styles, in a box of 100 x 100 where y points downward ---- */

enum { N_STYLES = 3, MOST_STROKES = 3, MOST_POINTS = 12 };

/* LINES: straight lines from point to point; CURVE: a smooth curve through the points. */
typedef enum { NO_STROKE, LINES, CURVE } stroke_kind;

typedef struct stroke {
    stroke_kind kind;
    int n_points;
    struct {
        uint8_t x, y;
    } points[MOST_POINTS];
} stroke;

/* clang-format off: each line is a stroke */
static const stroke glyphs[10][N_STYLES][MOST_STROKES] = {
    {{{CURVE, 9, {{50, 4}, {26, 18}, {16, 50}, {26, 82}, {50, 96}, {74, 82}, {84, 50}, {74, 18}, {48, 4}}}},
     {{CURVE, 9, {{60, 6}, {38, 22}, {28, 55}, {38, 88}, {56, 94}, {70, 66}, {72, 28}, {58, 6}, {44, 14}}}},
     {{CURVE, 8, {{66, 12}, {36, 8}, {14, 44}, {26, 84}, {56, 94}, {84, 62}, {78, 24}, {54, 10}}}}},

    {{{LINES, 2, {{50, 4}, {50, 96}}}},
     {{LINES, 3, {{32, 26}, {53, 5}, {51, 96}}}},
     {{LINES, 3, {{34, 22}, {52, 5}, {52, 95}}}, {LINES, 2, {{30, 95}, {74, 95}}}}},

    {{{CURVE, 7, {{18, 28}, {34, 8}, {62, 8}, {76, 28}, {62, 52}, {38, 74}, {18, 93}}}, {LINES, 2, {{18, 93}, {82, 93}}}},
     {{CURVE, 10, {{20, 25}, {40, 6}, {70, 12}, {72, 38}, {48, 68}, {24, 90}, {20, 78}, {40, 78}, {60, 92}, {86, 86}}}},
     {{CURVE, 5, {{20, 22}, {46, 6}, {74, 16}, {70, 42}, {18, 92}}}, {LINES, 2, {{18, 92}, {84, 88}}}}},

    {{{CURVE, 9, {{20, 15}, {46, 5}, {72, 18}, {66, 39}, {42, 47}, {70, 57}, {78, 78}, {50, 96}, {18, 84}}}},
     {{LINES, 3, {{20, 8}, {76, 8}, {46, 42}}}, {CURVE, 5, {{46, 42}, {72, 52}, {78, 76}, {54, 95}, {20, 86}}}},
     {{CURVE, 10, {{20, 20}, {50, 5}, {71, 22}, {55, 43}, {38, 48}, {42, 41}, {64, 51}, {75, 73}, {52, 96}, {18, 84}}}}},

    {{{LINES, 3, {{26, 6}, {18, 55}, {82, 55}}}, {LINES, 2, {{64, 22}, {62, 96}}}},
     {{LINES, 3, {{60, 4}, {15, 64}, {86, 64}}}, {LINES, 2, {{61, 4}, {60, 96}}}},
     {{CURVE, 4, {{22, 8}, {18, 40}, {36, 54}, {66, 48}}}, {CURVE, 3, {{70, 8}, {66, 50}, {60, 96}}}}},

    {{{LINES, 3, {{76, 8}, {28, 8}, {24, 45}}}, {CURVE, 6, {{24, 45}, {50, 38}, {76, 55}, {74, 82}, {46, 95}, {18, 85}}}},
     {{CURVE, 8, {{80, 7}, {42, 9}, {28, 24}, {34, 42}, {62, 48}, {76, 70}, {58, 93}, {20, 88}}}},
     {{CURVE, 6, {{30, 10}, {26, 42}, {54, 40}, {78, 62}, {60, 92}, {20, 88}}}, {LINES, 2, {{30, 10}, {82, 6}}}}},

    {{{CURVE, 9, {{68, 6}, {38, 25}, {20, 60}, {30, 90}, {58, 94}, {74, 74}, {60, 54}, {36, 60}, {24, 76}}}},
     {{CURVE, 8, {{50, 4}, {30, 35}, {22, 70}, {40, 95}, {68, 88}, {70, 64}, {48, 54}, {26, 68}}}},
     {{CURVE, 9, {{74, 14}, {50, 6}, {26, 35}, {18, 68}, {38, 96}, {70, 86}, {72, 62}, {46, 52}, {24, 70}}}}},

    {{{LINES, 3, {{18, 8}, {80, 8}, {42, 96}}}},
     {{LINES, 3, {{18, 10}, {80, 8}, {46, 96}}}, {LINES, 2, {{32, 50}, {74, 48}}}},
     {{CURVE, 3, {{18, 18}, {40, 9}, {80, 10}}}, {CURVE, 3, {{80, 10}, {58, 48}, {48, 96}}}}},

    {{{CURVE,
       11,
       {{70, 18}, {48, 5}, {28, 20}, {40, 42}, {65, 60}, {74, 80}, {50, 96}, {26, 80}, {35, 58}, {62, 40}, {70, 18}}}},
     {{CURVE, 7, {{50, 5}, {30, 15}, {30, 35}, {50, 46}, {70, 35}, {70, 15}, {50, 5}}},
      {CURVE, 7, {{50, 46}, {25, 58}, {25, 84}, {50, 96}, {75, 84}, {75, 58}, {50, 46}}}},
     {{CURVE, 10, {{76, 12}, {50, 5}, {28, 22}, {48, 46}, {72, 70}, {52, 96}, {26, 78}, {44, 52}, {70, 26}, {74, 8}}}}},

    {{{CURVE, 6, {{72, 24}, {48, 6}, {24, 24}, {30, 48}, {56, 48}, {72, 24}}}, {CURVE, 3, {{72, 24}, {70, 60}, {60, 96}}}},
     {{CURVE, 9, {{72, 20}, {46, 6}, {24, 28}, {42, 50}, {68, 38}, {75, 14}, {72, 60}, {50, 94}, {24, 86}}}},
     {{CURVE, 7, {{70, 14}, {42, 8}, {26, 30}, {44, 50}, {70, 36}, {72, 18}, {70, 30}}}, {LINES, 2, {{72, 10}, {70, 96}}}}},
};
/* clang-format on */

/* ---- the ranges of what is random ---- */

enum { SIDE = STRATA_DIGIT_SIDE, PIXELS = SIDE * SIDE, PIECES = 4 /* line segments between two points of a curve */ };

/* The ranges of the random numbers. They were chosen so that a linear classifier recognises about nine of ten digits and a
 * small network nearly all. Coordinates of a glyph are in a box of 100 x 100. most_x: the number is drawn from -most_x ..
 * most_x. */
static const float most_jitter = 6.5f;          /* how far a point is moved in x and in y, in coordinates of the box */
static const float most_wave = 5.0f;            /* the amplitude of the wave, in coordinates of the box */
static const float most_turn = 0.25f;           /* the rotation in radians: up to 14 degrees */
static const float most_shear = 0.25f;          /* dx / dy */
static const float scales[2] = {0.15f, 0.225f}; /* pixels per coordinate of the box: digits are 15 to 22.5 pixels high */
static const float most_shift = 2.0f;           /* in pixels */
static const float radii[2] = {0.65f, 1.5f};    /* the radius of the pen, in pixels */
static const float inks[2] = {0.55f, 1.0f};     /* the brightness of the strokes, where 1 is white */
static const float most_noise = 0.18f;          /* the noise of a pixel, where 1 is white */

/* ---- random numbers: image i uses the Philox blocks (i, 0), (i, 1), ... with the key `seed` ---- */

typedef struct generator {
    uint64_t seed, index;
    uint32_t n_blocks; /* how many blocks were computed */
    int n_left;        /* how many words of `block` are not used yet */
    strata_philox_block block;
} generator;

static void next_block(generator *g) {
    strata_philox_block counter = {{(uint32_t)g->index, (uint32_t)(g->index >> 32), g->n_blocks++, 0x64696769 /* "digi" */}};
    g->block = strata_philox(counter, (uint32_t)g->seed, (uint32_t)(g->seed >> 32));
    g->n_left = 4;
}

static uint32_t next_word(generator *g) {
    if (g->n_left == 0) next_block(g);
    return g->block.words[--g->n_left];
}

static float uniform(generator *g, float from, float to) {
    return from + (to - from) * (float)(next_word(g) >> 8) * 0x1p-24f;
}
static float either_way(generator *g, float most) {
    return uniform(g, -most, most);
}
static int choice(generator *g, int n) {
    return (int)((uint64_t)next_word(g) * (uint64_t)n >> 32);
}

/* ---- drawing ---- */

typedef struct point {
    float x, y;
} point;

/* The map from the box of the glyph to pixels: a wave that bends the glyph, then an affine map. */
typedef struct distortion {
    float wave[2], phase[2];
    float xx, xy, yx, yy; /* relative to the middle: x' = xx x + xy y, y' = yx x + yy y */
    point middle;         /* in pixels */
    float reach;          /* pixels farther than this from a stroke, in pixels, stay dark */
} distortion;

static distortion random_distortion(generator *g) {
    distortion h = {.wave = {either_way(g, most_wave), either_way(g, most_wave)},
                    .phase = {uniform(g, 0, 6.2832f), uniform(g, 0, 6.2832f)}};
    float turn = either_way(g, most_turn), shear = either_way(g, most_shear);
    float height = uniform(g, scales[0], scales[1]), width = height * uniform(g, 0.75f, 1.05f);
    float c = cosf(turn), s = sinf(turn);
    h.xx = c * width;
    h.xy = (c * shear - s) * height;
    h.yx = s * width;
    h.yy = (s * shear + c) * height;
    h.middle.x = (SIDE - 1) * 0.5f + either_way(g, most_shift);
    h.middle.y = (SIDE - 1) * 0.5f + either_way(g, most_shift);
    return h;
}

static point to_pixels(const distortion *h, float x, float y) {
    float bent_x = x - 50 + h->wave[0] * sinf(y * 0.063f + h->phase[0]),
          bent_y = y - 50 + h->wave[1] * sinf(x * 0.063f + h->phase[1]);
    return (point){h->middle.x + h->xx * bent_x + h->xy * bent_y, h->middle.y + h->yx * bent_x + h->yy * bent_y};
}

/* The first and the last pixel, 0 to SIDE - 1, that is within `reach` of the range a..b on one axis. There is none if last <
 * first. */
static void pixel_range(float a, float b, float reach, int *out_first, int *out_last) {
    float low = fminf(a, b) - reach, high = fmaxf(a, b) + reach;
    *out_first = low <= 0 ? 0 : low >= SIDE ? SIDE : (int)low;
    *out_last = high < 0 ? -1 : high >= SIDE - 1 ? SIDE - 1 : (int)high;
}

/* Updates the smallest squared distances of the pixels that are within `reach` of the segment a-b. Blocks of 4 columns are
 * computed together. */
static void draw_segment(float distance2[PIXELS], point a, point b, float reach) {
    int top, bottom, left, right;
    pixel_range(a.y, b.y, reach, &top, &bottom);
    pixel_range(a.x, b.x, reach, &left, &right);
    float dx = b.x - a.x, dy = b.y - a.y, length2 = dx * dx + dy * dy;
    float per_length2 = length2 > 0 ? 1 / length2 : 0;
    for (int row = top; row <= bottom; row++) {
        float py = (float)row - a.y;
        for (int block = left & ~3; block <= right; block += 4) {
            float *out = distance2 + row * SIDE + block;
            for (int i = 0; i < 4; i++) {
                float px = (float)(block + i) - a.x;
                float along = (px * dx + py * dy) * per_length2;
                along = along < 0 ? 0 : along;
                along = along > 1 ? 1 : along;
                float ex = px - along * dx, ey = py - along * dy, d2 = ex * ex + ey * ey;
                out[i] = d2 < out[i] ? d2 : out[i];
            }
        }
    }
}

/* The point at t, 0 to 1, between b and c on the Catmull-Rom curve through a, b, c, d. */
static point on_curve(point a, point b, point c, point d, float t) {
    float wa = t * (-0.5f + t * (1 - 0.5f * t)), wb = 1 + t * t * (-2.5f + 1.5f * t);
    float wc = t * (0.5f + t * (2 - 1.5f * t)), wd = t * t * (-0.5f + 0.5f * t);
    return (point){wa * a.x + wb * b.x + wc * c.x + wd * d.x, wa * a.y + wb * b.y + wc * c.y + wd * d.y};
}

static void draw_stroke(float distance2[PIXELS], const stroke *path, const distortion *h, generator *g) {
    point points[MOST_POINTS];
    const int last = path->n_points - 1;
    for (int i = 0; i <= last; i++) {
        float x = path->points[i].x + either_way(g, most_jitter), y = path->points[i].y + either_way(g, most_jitter);
        points[i] = to_pixels(h, x, y);
    }
    for (int i = 0; i < last; i++) {
        point a = points[i > 0 ? i - 1 : 0], b = points[i], c = points[i + 1], d = points[i + 1 < last ? i + 2 : last];
        point from = b;
        for (int piece = 1; path->kind == CURVE && piece < PIECES; piece++) {
            point to = on_curve(a, b, c, d, (float)piece / PIECES);
            draw_segment(distance2, from, to, h->reach);
            from = to;
        }
        draw_segment(distance2, from, c, h->reach);
    }
}

/* Computes the brightness of each pixel from its distance to the strokes. The edge of a stroke is one pixel wide. The noise of
 * a pixel is 8 random bits, so that a Philox block suffices for 16 pixels. */
static void shade(const float distance2[PIXELS], float radius, float ink, float noise, generator *g,
                  uint8_t out_image[PIXELS]) {
    const float noise_step = noise / 127.5f * 255;
    uint8_t grains[PIXELS];
    for (int i = 0; i < PIXELS; i += (int)sizeof g->block) {
        next_block(g);
        memcpy(grains + i, &g->block, sizeof g->block);
    }
    for (int i = 0; i < PIXELS; i++) {
        float cover = radius + 0.5f - sqrtf(distance2[i]);
        cover = cover < 0 ? 0 : cover;
        cover = cover > 1 ? 1 : cover;
        float value = cover * (ink * 255) + ((float)(int)grains[i] - 127.5f) * noise_step;
        value = value < 0 ? 0 : value;
        value = value > 255 ? 255 : value;
        out_image[i] = (uint8_t)(int)(value + 0.5f);
    }
}

static uint8_t draw_digit(uint64_t seed, uint64_t index, uint8_t out_image[PIXELS]) {
    generator g = {.seed = seed, .index = index};
    float distance2[PIXELS];
    for (int i = 0; i < PIXELS; i++) distance2[i] = 1e6f;
    int digit = choice(&g, STRATA_DIGIT_CLASSES), style = choice(&g, N_STYLES);
    distortion h = random_distortion(&g);
    float radius = uniform(&g, radii[0], radii[1]), ink = uniform(&g, inks[0], inks[1]), noise = uniform(&g, 0, most_noise);
    h.reach = radius + 0.5f;
    for (int i = 0; i < MOST_STROKES && glyphs[digit][style][i].kind != NO_STROKE; i++)
        draw_stroke(distance2, &glyphs[digit][style][i], &h, &g);
    shade(distance2, radius, ink, noise, &g, out_image);
    return (uint8_t)digit;
}

void strata_image_set_finish(strata_image_set *set) {
    if (!set) return;
    strata_array_finish(&set->images);
    strata_array_finish(&set->labels);
}

strata_status strata_digits_make(uint64_t seed, uint64_t first_index, int64_t n_images, strata_image_set *out_set,
                                 strata_error *err) {
    *out_set = (strata_image_set){0};
    if (n_images < 1)
        return strata_fail(err, STRATA_INVALID, "a set of %lld images; it must have at least 1", (long long)n_images);
    strata_status status = strata_array_create(STRATA_DTYPE_U8, STRATA_SHAPE(n_images, SIDE, SIDE), &out_set->images, err);
    if (!status) status = strata_array_create(STRATA_DTYPE_U8, STRATA_SHAPE(n_images), &out_set->labels, err);
    if (status) strata_image_set_finish(out_set);
    if (status) return status;
    uint8_t *images = out_set->images.data, *labels = out_set->labels.data;
    for (int64_t i = 0; i < n_images; i++) labels[i] = draw_digit(seed, first_index + (uint64_t)i, images + i * PIXELS);
    return STRATA_OK;
}
