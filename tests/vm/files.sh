# Operations on a file system: create, append, rename, unlink, truncate, link, fallocate, stores through a mapping, sync.
echo one > file
sync
mkdir directory
echo two >> file; sync file
mv file directory/renamed
dd if=/dev/zero of=large bs=4096 count=8 2> /dev/null; sync large
tool map large 4000 stored; sync large
tool map large 100 changed; sync large
truncate -s 5000 large
ln directory/renamed hard
ln -s hard soft
sync
mv large directory/renamed
rm hard
fallocate -l 20000 large
mkdir directory/inner; sync directory
rmdir directory/inner
sync
