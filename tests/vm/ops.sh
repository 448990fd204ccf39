# Operations on the toy directory: each is one write to /proc/toydir.
echo create first > /proc/toydir
echo write first hello > /proc/toydir
echo create second > /proc/toydir
echo write second a-longer-text-that-fills-more-of-the-slot > /proc/toydir
echo rename first third > /proc/toydir
echo rename third second > /proc/toydir
echo create first > /proc/toydir
echo remove second > /proc/toydir
