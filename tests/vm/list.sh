#!/bin/sh
cat /proc/toydir
