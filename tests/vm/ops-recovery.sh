# Leaves a journal, and recovers it while it is recorded.
echo create first > /proc/toydir
echo write first hello > /proc/toydir
echo halt now > /proc/toydir; echo rename first second > /proc/toydir; /powerfail/detach; /powerfail/attach
