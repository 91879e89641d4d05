#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes small pictures of many kinds into a folder, and beside this file what Pillow reads from each, as <name>.ppm.

usage: make.py FOLDER   (tests/fuzz/corpus/picture; Pillow 13 and NumPy wrote the files that are in the repository)

Grey samples of 16 bits are an exception: Pillow makes those above 255 white, and the files have their upper bytes.
"""

import io
import pathlib
import struct
import sys
import zlib

import numpy as np
from PIL import Image, ImageOps

out, here = pathlib.Path(sys.argv[1]), pathlib.Path(__file__).parent
H, W = 5, 7
y, x = np.mgrid[0:H, 0:W]
noise = np.random.default_rng(0)
rgb = np.stack([x * 41, y * 60, (x * y * 11) % 256], -1).astype("u1")
alpha = noise.integers(0, 256, (H, W, 1)).astype("u1")
wide = (np.stack([x * 9000, y * 15000, 65535 - x * 8000], -1) + noise.integers(0, 256, (H, W, 3))).astype("u2")
RGB = Image.fromarray(rgb)
RGBA, GREY = Image.fromarray(np.concatenate([rgb, alpha], -1)), RGB.convert("L")
LA, BITS, PALETTE = RGBA.convert("LA"), GREY.convert("1"), RGB.quantize(40)
SMOOTH = Image.fromarray(np.stack(np.broadcast_arrays(np.arange(24) * 9, np.arange(16)[:, None] * 14, 90), -1).astype("u1"))


def put(name, data, wanted=None):
    (out / name).write_bytes(data)
    if wanted is None:
        wanted = ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB")
    wanted.save(here / (name + ".ppm"))


def save(name, picture, kind, **options):
    file = io.BytesIO()
    picture.save(file, kind, **options)
    put(name, file.getvalue())


def upper_bytes(values):
    return Image.fromarray((values >> 8).astype("u1")).convert("RGB")


# PNG
for name, picture in {"rgb": RGB, "alpha": RGBA, "grey_alpha": LA, "grey": GREY, "bits": BITS, "palette": PALETTE}.items():
    save(f"png_{name}.png", picture, "PNG")
save("png_palette_clear.png", PALETTE, "PNG", transparency=3)
save("png_palette_2.png", RGB.quantize(4), "PNG", bits=2)
save("png_animation.png", RGB, "PNG", save_all=True, append_images=[RGB.rotate(180)])


def png(kind, depth, rows, more=b"", interlaced=0):
    def chunk(name, body):
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
    head = struct.pack(">IIBBBBB", W, H, depth, kind, 0, 0, interlaced)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + more + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


put("png_wide.png", png(2, 16, b"".join(b"\0" + row.astype(">u2").tobytes() for row in wide)))
put("png_wide_grey.png", png(0, 16, b"".join(b"\0" + row.astype(">u2").tobytes() for row in wide[..., 0])),
    upper_bytes(wide[..., 0]))
linear = b"gAMA" + struct.pack(">I", 100000)
gamma = struct.pack(">I", 4) + linear + struct.pack(">I", zlib.crc32(linear))
put("png_gamma.png", png(2, 8, b"".join(b"\0" + row.tobytes() for row in rgb), gamma))
passes = b""
for y0, x0, dy, dx in ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)):
    passes += b"".join(b"\0" + row.tobytes() for row in rgb[y0::dy, x0::dx] if row.size)
put("png_interlaced.png", png(2, 8, passes, b"", 1))

# JPEG: red, green and blue, grey, in several passes, with inks, and with bytes that decoders warn of
save("jpeg_colours.jpg", SMOOTH, "JPEG", quality=90)
save("jpeg_grey.jpg", SMOOTH.convert("L"), "JPEG", quality=90)
save("jpeg_passes.jpg", SMOOTH, "JPEG", quality=90, progressive=True)
save("jpeg_cmyk.jpg", SMOOTH.convert("CMYK"), "JPEG", quality=90)
plain = (out / "jpeg_colours.jpg").read_bytes()
put("jpeg_warning.jpg", plain[:-2] + b"\0\1\2\3" + plain[-2:])
ycck = out / "jpeg_ycck.jpg"  # written by libturbojpeg's tjCompress2 from TJPF_CMYK
if ycck.exists():
    put("jpeg_ycck.jpg", ycck.read_bytes())

# WebP
save("webp_whole.webp", RGB, "WEBP", lossless=True)
save("webp_alpha.webp", RGBA, "WEBP", lossless=True, exact=True)
save("webp_animation.webp", RGBA, "WEBP", save_all=True, append_images=[RGBA.rotate(180)], lossless=True, exact=True)

# GIF
save("gif_animation.gif", PALETTE, "GIF", save_all=True, append_images=[RGB.rotate(180).quantize(20)])
save("gif_interlaced.gif", PALETTE, "GIF", interlace=1)
save("gif_clear.gif", PALETTE, "GIF", transparency=5)
save("gif_grey.gif", GREY, "GIF", interlace=0)
small = bytearray((out / "gif_clear.gif").read_bytes())
struct.pack_into("<HH", small, 6, W + 3, H + 2)  # the picture leaves a part of the screen free
put("gif_part.gif", bytes(small))

# BMP
for name, picture in {"colours": RGB, "grey": GREY, "bits": BITS, "palette": PALETTE, "alpha": RGBA}.items():
    save(f"bmp_{name}.bmp", picture, "BMP")


def bmp(bits, compression, pixels, palette=b"", masks=b"", height=H, core=False):
    if core:
        header = struct.pack("<IHHHH", 12, W, height, 1, bits)
    else:
        header = struct.pack("<IiiHHIIiiII", 40, W, height, 1, bits, compression, len(pixels), 2835, 2835, len(palette) // 4, 0)
    offset = 14 + len(header) + len(masks) + len(palette)
    return b"BM" + struct.pack("<IHHI", offset + len(pixels), 0, 0, offset) + header + masks + palette + pixels


def rows_of(values, kind):
    rows = [row.astype(kind).tobytes() for row in values[::-1]]
    return b"".join(row + bytes(-len(row) % 4) for row in rows)


fives = (rgb[..., 0].astype("u4") >> 3 << 10) | (rgb[..., 1] >> 3 << 5).astype("u4") | rgb[..., 2] >> 3
sixes = (rgb[..., 0].astype("u4") >> 3 << 11) | (rgb[..., 1].astype("u4") >> 2 << 5) | rgb[..., 2] >> 3
put("bmp_555.bmp", bmp(16, 0, rows_of(fives, "<u2")))
put("bmp_565.bmp", bmp(16, 3, rows_of(sixes, "<u2"), masks=struct.pack("<III", 0xF800, 0x7E0, 0x1F)))
reversed_order = rgb[..., 0].astype("u4") | rgb[..., 1].astype("u4") << 8 | rgb[..., 2].astype("u4") << 16
put("bmp_masks.bmp", bmp(32, 3, rows_of(reversed_order, "<u4"), masks=struct.pack("<III", 0xFF, 0xFF00, 0xFF0000)), RGB)
put("bmp_from_top.bmp", bmp(24, 0, rows_of(rgb[::-1, :, ::-1].reshape(H, -1), "u1"), height=-H))
put("bmp_core.bmp", bmp(24, 0, rows_of(rgb[:, :, ::-1].reshape(H, -1), "u1"), core=True))
colours = b"".join(bytes([i * 16, 255 - i * 16, i * 5, 0]) for i in range(16))
runs_8 = b"\7\3\0\0" b"\0\7\1\2\3\4\5\6\7\0\0\0" b"\2\5\0\2\3\0\2\6\0\0" b"\7\x08\0\0" b"\7\x09\0\1"
runs_4 = b"\7\x34\0\0" b"\0\7\x12\x34\x56\x70\0\0" b"\7\x55\0\0" b"\7\x81\0\0" b"\7\x09\0\1"
put("bmp_rle8.bmp", bmp(8, 1, runs_8, colours))
put("bmp_rle4.bmp", bmp(4, 2, runs_4, colours))

# TIFF
for pack in (None, "tiff_lzw", "tiff_adobe_deflate", "packbits"):
    save(f"tiff_{pack or 'plain'}.tif", RGB, "TIFF", compression=pack)
for name, picture in {"alpha": RGBA, "grey_alpha": LA, "grey": GREY, "bits": BITS, "palette": PALETTE,
                      "inks": RGB.convert("CMYK")}.items():
    save(f"tiff_{name}.tif", picture, "TIFF")
save("tiff_fax.tif", BITS, "TIFF", compression="group4")
save("tiff_jpeg.tif", SMOOTH, "TIFF", compression="jpeg", quality=90)
save("tiff_pages.tif", RGB, "TIFF", save_all=True, append_images=[GREY])


def tiff(tags, blocks, offsets_tag, counts_tag, order="<", big=False):
    """A file of one directory: tags {number: (type, [values])}, type 3 (16 bits) or 4 (32 bits)."""
    head, count, entry = (16, "Q", 20) if big else (8, "H", 12)
    offsets, at = [], head
    for block in blocks:
        offsets.append(at)
        at += len(block) + len(block) % 2
    tags = dict(tags)
    tags[offsets_tag], tags[counts_tag] = (4, offsets), (4, [len(block) for block in blocks])
    body = b"".join(block + b"\0" * (len(block) % 2) for block in blocks)
    directory, extra = b"", b""
    far = at + struct.calcsize(order + count) + len(tags) * entry + (8 if big else 4)
    for tag, (kind, values) in sorted(tags.items()):
        data = struct.pack(order + str(len(values)) + {3: "H", 4: "I"}[kind], *values)
        room = 8 if big else 4
        if len(data) > room:
            place = struct.pack(order + ("Q" if big else "I"), far + len(extra))
            extra += data + b"\0" * (len(data) % 2)
        else:
            place = data.ljust(room, b"\0")
        directory += struct.pack(order + "HH" + ("Q" if big else "I"), tag, kind, len(values)) + place
    start = {"<": b"II", ">": b"MM"}[order]
    if big:
        start += struct.pack(order + "HHHQ", 43, 8, 0, at)
    else:
        start += struct.pack(order + "HI", 42, at)
    return start + body + struct.pack(order + count, len(tags)) + directory + bytes(8 if big else 4) + extra


def tags_of(bits, samples, photometric, **more):
    tags = {256: (4, [W]), 257: (4, [H]), 258: (3, [bits] * samples), 259: (3, [1]), 262: (3, [photometric]),
            277: (3, [samples]), 278: (4, [H])}
    tags.update({int(tag[1:]): (3, value) for tag, value in more.items()})
    return tags


put("tiff_planes.tif", tiff(tags_of(8, 3, 2, t284=[2]), [rgb[..., k].tobytes() for k in range(3)], 273, 279))
tiles = {**tags_of(8, 3, 2), 322: (4, [16]), 323: (4, [16])}
del tiles[278]
tile = np.zeros((16, 16, 3), "u1")
tile[:H, :W] = rgb
put("tiff_tiles.tif", tiff(tiles, [tile.tobytes()], 324, 325))
put("tiff_wide.tif", tiff(tags_of(16, 3, 2), [wide.astype(">u2").tobytes()], 273, 279, ">"), upper_bytes(wide))
put("tiff_wide_grey.tif", tiff(tags_of(16, 1, 1), [wide[..., 0].astype("<u2").tobytes()], 273, 279),
    upper_bytes(wide[..., 0]))
put("tiff_white_is_0.tif", tiff(tags_of(8, 1, 0), [rgb[..., 0].tobytes()], 273, 279))
multiplied = np.concatenate([(rgb.astype("u2") * alpha // 255).astype("u1"), alpha], -1)
put("tiff_multiplied.tif", tiff(tags_of(8, 4, 2, t338=[1]), [multiplied.tobytes()], 273, 279))
big = tiff(tags_of(8, 3, 2, t274=[6]), [rgb.tobytes()], 273, 279, big=True)
put("tiff_big.tif", big, Image.fromarray(rgb).transpose(Image.ROTATE_270))

# netpbm
for name, picture in {"ppm": RGB, "pgm": GREY, "pbm": BITS}.items():
    save(f"netpbm.{name}", picture, "PPM")

# all orientations
for number in range(1, 9):
    exif = Image.Exif()
    exif[0x112] = number
    save(f"turned_{number}.png", RGB, "PNG", exif=exif)
    save(f"turned_{number}.webp", RGB, "WEBP", lossless=True, exif=exif)
    save(f"turned_{number}.tif", RGB, "TIFF", exif=exif)
    if number == 6:
        save("turned_6.jpg", SMOOTH, "JPEG", quality=90, exif=exif)
