#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <span>

#include "train/data_sets.h"
#include "train/stream.h"

// Generates images of ten shapes, so that image models can be trained without downloading
// anything. Every shape is shifted, rotated and scaled at random and painted in a random
// colour, over a shaded background, with strokes behind and in front of it and with noise.
// About 50 us per image.

namespace gravac::train {

namespace {

constexpr int kSide = 32, kPlane = kSide * kSide;

// A shape is given by its signed distance: how far the point (x, y) lies outside the shape,
// or, if negative, inside. All shapes fit into the square [-1, 1]^2.
using Distance = float (*)(float x, float y);

float box(float x, float y, float half_width, float half_height) {
  return std::max(std::abs(x) - half_width, std::abs(y) - half_height);
}
float disc(float x, float y) {
  return std::sqrt(x * x + y * y) - 0.85f;
}
float ring(float x, float y) {
  return std::abs(std::sqrt(x * x + y * y) - 0.68f) - 0.2f;
}
float square(float x, float y) {
  return box(x, y, 0.75f, 0.75f);
}
float frame(float x, float y) {
  return std::abs(box(x, y, 0.6f, 0.6f)) - 0.18f;
}
float triangle(float x, float y) {
  return std::max(std::abs(x) * 0.866f - (y - 0.25f) * 0.5f - 0.5f, y - 0.7f);
}
float cross(float x, float y) {
  return std::min(box(x, y, 0.9f, 0.22f), box(x, y, 0.22f, 0.9f));
}
float saltire(float x, float y) {
  return cross((x + y) * 0.7071f, (x - y) * 0.7071f);
}
float horizontal_bars(float x, float y) {
  return box(x, y - 0.6f * std::clamp(std::round(y / 0.6f), -1.0f, 1.0f), 0.85f, 0.18f);
}
float vertical_bars(float x, float y) {
  return horizontal_bars(y, x);
}
// A board of 3 x 3 fields of which the corners and the middle are filled.
float checker(float x, float y) {
  const float edge = std::min(std::abs(std::abs(x) - 0.3f), std::abs(std::abs(y) - 0.3f));
  const bool filled = (std::abs(x) < 0.3f) == (std::abs(y) < 0.3f);
  return std::max(box(x, y, 0.9f, 0.9f), filled ? -edge : edge);
}

constexpr std::array<Distance, 10> kShapes = {disc,  ring,    square,          frame,         triangle,
                                              cross, saltire, horizontal_bars, vertical_bars, checker};

using Colour = std::array<float, 3>;  // red, green and blue, from 0 to 1

Colour any_colour(Stream& random) {
  return {random.uniform(0, 1), random.uniform(0, 1), random.uniform(0, 1)};
}

float difference(const Colour& a, const Colour& b) {
  return std::abs(a[0] - b[0]) + std::abs(a[1] - b[1]) + std::abs(a[2] - b[2]);
}

// A random colour that can still be told apart from `other`.
Colour colour_unlike(const Colour& other, Stream& random) {
  Colour colour = any_colour(random);
  while (difference(colour, other) < 0.7f) colour = any_colour(random);
  return colour;
}

using Canvas = std::array<std::array<float, kPlane>, 3>;

// Paints every pixel where `distance(x, y)`, in pixels, is negative. Pixels that the edge
// passes through are blended with what is below, so that edges are smooth.
template <class F>
void paint(Canvas& canvas, const Colour& colour, F distance) {
  for (int y = 0; y < kSide; ++y) {
    for (int x = 0; x < kSide; ++x) {
      const float cover =
          std::clamp(0.5f - distance(static_cast<float>(x), static_cast<float>(y)), 0.0f, 1.0f);
      if (cover == 0) continue;
      const auto at = static_cast<std::size_t>(y * kSide + x);
      for (std::size_t c = 0; c < 3; ++c) canvas[c][at] += cover * (colour[c] - canvas[c][at]);
    }
  }
}

// Fills the canvas with `colour`, lighter towards one side and darker towards the other.
void paint_background(Canvas& canvas, const Colour& colour, Stream& random) {
  const float angle = random.uniform(0, 2 * std::numbers::pi_v<float>);
  const float across = 0.6f * std::cos(angle) / kSide, down = 0.6f * std::sin(angle) / kSide;
  for (int y = 0; y < kSide; ++y) {
    for (int x = 0; x < kSide; ++x) {
      const float shade =
          across * static_cast<float>(x - kSide / 2) + down * static_cast<float>(y - kSide / 2);
      for (std::size_t c = 0; c < 3; ++c)
        canvas[c][static_cast<std::size_t>(y * kSide + x)] = colour[c] + shade;
    }
  }
}

// Paints a straight line with round ends, of random place, direction and colour.
void paint_stroke(Canvas& canvas, float longest, float thickest, Stream& random) {
  const Colour colour = any_colour(random);
  const float x0 = random.uniform(0, kSide), y0 = random.uniform(0, kSide);
  const float angle = random.uniform(0, 2 * std::numbers::pi_v<float>);
  const float across = std::cos(angle), down = std::sin(angle);
  const float length = random.uniform(4, longest), half = random.uniform(0.5f, thickest / 2);
  paint(canvas, colour, [=](float x, float y) {
    const float along = std::clamp((x - x0) * across + (y - y0) * down, 0.0f, length);
    const float dx = x - x0 - along * across, dy = y - y0 - along * down;
    return std::sqrt(dx * dx + dy * dy) - half;
  });
}

void paint_shape(Canvas& canvas, Distance shape, const Colour& colour, Stream& random) {
  const float size = random.uniform(8, 13);
  // How far the middle may be moved so that the shape stays in the image. Rotated corners may leave it.
  const float room = std::min(4.0f, kSide / 2.0f - size);
  const float middle_x = kSide / 2.0f - 0.5f + random.uniform(-room, room);
  const float middle_y = kSide / 2.0f - 0.5f + random.uniform(-room, room);
  // Rotated by up to 20 degrees either way. At 22.5 degrees a cross could as well be an x, and at 45
  // degrees horizontal and vertical bars look the same.
  const float angle = random.uniform(-0.35f, 0.35f);
  const float cosine = std::cos(angle) / size, sine = std::sin(angle) / size;
  paint(canvas, colour, [=](float x, float y) {
    const float dx = x - middle_x, dy = y - middle_y;
    return size * shape(cosine * dx + sine * dy, cosine * dy - sine * dx);
  });
}

// Adds noise to the canvas, rounds it to bytes and appends those to `pixels`. The noise is the sum of
// two uniform numbers: near enough to a normal distribution, and both come from one draw.
void append_with_noise(const Canvas& canvas, float noise, Stream& random, std::vector<std::uint8_t>& pixels) {
  for (const auto& plane : canvas) {
    for (const float value : plane) {
      const std::uint64_t bits = random.next();
      const auto sum = static_cast<float>((bits & 0xffff) + (bits >> 48)) / 65536 - 1;
      pixels.push_back(
          static_cast<std::uint8_t>(std::clamp(255 * (value + noise * sum) + 0.5f, 0.0f, 255.0f)));
    }
  }
}

void draw(std::size_t label, Stream random, Images& images) {
  Canvas canvas;
  const Colour background = any_colour(random);
  paint_background(canvas, background, random);
  for (auto strokes = 2 + random.below(3); strokes > 0; --strokes) paint_stroke(canvas, 24, 3, random);
  paint_shape(canvas, kShapes[label], colour_unlike(background, random), random);
  for (auto strokes = 1 + random.below(2); strokes > 0; --strokes) paint_stroke(canvas, 16, 2, random);
  append_with_noise(canvas, random.uniform(0.03f, 0.2f), random, images.pixels);
  images.labels.push_back(static_cast<std::int64_t>(label));
}

Images draw_part(std::size_t count, std::uint64_t part, std::uint64_t seed) {
  Images images;
  images.pixels.reserve(count * 3 * kPlane);
  images.labels.reserve(count);
  // Every image has its own stream of random numbers, so that it does not depend on the others.
  for (std::size_t i = 0; i < count; ++i) draw(i % kShapes.size(), Stream({seed, i, part}), images);
  return images;
}

}  // namespace

// 8000 images to train on, 2000 to test on; every tenth image shows the same kind of shape.
ImageSet draw_images(const DataOptions& options) {
  return {.shape = {}, .train = draw_part(8000, 0, options.seed), .test = draw_part(2000, 1, options.seed)};
}

}  // namespace gravac::train
