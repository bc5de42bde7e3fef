#include "train/files.h"

#include <lzma.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <memory>

#include "gravac/util/require.h"

namespace gravac::train {

namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr std::size_t kPiece = 1 << 18;  // bytes that one call decompresses

Bytes read_plain(const std::string& path) {
  require(!std::filesystem::is_directory(path), "data: ", path, ": expected a file, got a folder");
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  require(file.is_open(), "data: ", path, ": cannot be opened");
  Bytes bytes(static_cast<std::size_t>(file.tellg()));
  file.seekg(0).read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  require(file.good() || bytes.empty(), "data: ", path, ": only ", file.gcount(), " of ", bytes.size(),
          " bytes could be read");
  return bytes;
}

// Decompresses piece by piece, since a .gz file does not say reliably how long its contents are (the
// length in its trailer is modulo 4 GiB, and of the last stream only). zlib's counters are 32 bits wide.
Bytes unpack_gzip(const std::string& path, Bytes packed) {
  require(packed.size() <= std::numeric_limits<uInt>::max(), "data: ", path,
          ": expected fewer than 4 GiB, got ", packed.size(), " bytes");
  z_stream stream{};
  // 16 more than the window bits: zlib is to expect a gzip header.
  require(inflateInit2(&stream, MAX_WBITS + 16) == Z_OK, "data: ", path,
          ": out of memory while unpacking it");
  const std::unique_ptr<z_stream, int (*)(z_stream*)> end(&stream, inflateEnd);  // also when we throw
  stream.next_in = packed.data();
  stream.avail_in = static_cast<uInt>(packed.size());
  Bytes bytes;
  auto piece = std::make_unique<Bytef[]>(kPiece);
  for (int state = Z_OK; state != Z_STREAM_END || stream.avail_in > 0;) {
    if (state == Z_STREAM_END) inflateReset(&stream);  // a .gz file may hold several gzip streams
    stream.next_out = piece.get();
    stream.avail_out = kPiece;
    state = inflate(&stream, Z_NO_FLUSH);
    // No progress although there is room for output: the input has ended.
    require(state != Z_BUF_ERROR, "data: ", path, ": gzip data ends early, at byte ", packed.size());
    require(state == Z_OK || state == Z_STREAM_END, "data: ", path, ": damaged gzip data at byte ",
            packed.size() - stream.avail_in);
    bytes.insert(bytes.end(), piece.get(), stream.next_out);
  }
  return bytes;
}

// LZMA_CONCATENATED: an .xz file may hold several streams. The limit on memory is off: data files are the
// user's own.
Bytes unpack_xz(const std::string& path, const Bytes& packed) {
  lzma_stream stream = LZMA_STREAM_INIT;
  require(
      lzma_stream_decoder(&stream, std::numeric_limits<std::uint64_t>::max(), LZMA_CONCATENATED) == LZMA_OK,
      "data: ", path, ": out of memory while unpacking it");
  const std::unique_ptr<lzma_stream, void (*)(lzma_stream*)> end(&stream, lzma_end);
  stream.next_in = packed.data();
  stream.avail_in = packed.size();
  Bytes bytes;
  auto piece = std::make_unique<std::uint8_t[]>(kPiece);
  for (lzma_ret state = LZMA_OK; state != LZMA_STREAM_END;) {
    stream.next_out = piece.get();
    stream.avail_out = kPiece;
    state = lzma_code(&stream, LZMA_FINISH);
    require(state != LZMA_BUF_ERROR, "data: ", path, ": xz data ends early, at byte ", packed.size());
    require(state == LZMA_OK || state == LZMA_STREAM_END, "data: ", path, ": damaged xz data at byte ",
            packed.size() - stream.avail_in);
    bytes.insert(bytes.end(), piece.get(), stream.next_out);
  }
  return bytes;
}

}  // namespace

std::vector<std::uint8_t> read_file(const std::string& path) {
  Bytes bytes = read_plain(path);
  if (path.ends_with(".gz")) return unpack_gzip(path, std::move(bytes));
  if (path.ends_with(".xz")) return unpack_xz(path, bytes);
  return bytes;
}

std::string find_file(const std::string& dir, std::initializer_list<std::string_view> names) {
  require(std::filesystem::is_directory(dir), "data: ", dir, ": no such folder");
  std::string listed;
  for (const std::string_view name : names) {
    for (const char* ending : {"", ".gz", ".xz"}) {
      const std::string path = (std::filesystem::path(dir) / name).string() + ending;
      if (std::filesystem::exists(path)) return path;
    }
    listed += (listed.empty() ? "" : " or ") + std::string(name);
  }
  throw Error("data: " + dir + ": no " + listed + " found, plain or packed (.gz, .xz)");
}

}  // namespace gravac::train
