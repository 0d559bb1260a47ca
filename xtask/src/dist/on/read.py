import os
import cringle

content = os.urandom(1 << 20)
with open("/tmp/read.bin", "wb") as file:
    file.write(content)
offsets = [number * 4096 for number in range(256)]
with cringle.BlockIO() as io, cringle.open("/tmp/read.bin") as file:
    blocks = io.read_many(file, offsets, 4096, as_bytes=True)
    assert b"".join(blocks) == content
    print(f"256 blocks by {io.driver}, {io.driver_reason or 'without a reason to fall back'}")
