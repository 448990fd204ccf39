# Blocks of a disk with a write cache in persistent memory: each is written, synced, and written again. Only fsync makes the cache
# durable; sync alone does not reach it.
echo one | dd of=/dev/dm-2 bs=4096 seek=0 conv=notrunc,fsync 2> /dev/null
echo two | dd of=/dev/dm-2 bs=4096 seek=1 conv=notrunc,fsync 2> /dev/null
echo three | dd of=/dev/dm-2 bs=4096 seek=5 conv=notrunc 2> /dev/null
dd if=/dev/null of=/dev/dm-2 conv=notrunc,fsync 2> /dev/null
echo four | dd of=/dev/dm-2 bs=4096 seek=0 conv=notrunc,fsync 2> /dev/null
echo five | dd of=/dev/dm-2 bs=4096 seek=5 conv=notrunc,fsync 2> /dev/null
