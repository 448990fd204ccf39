#!/bin/sh
set -e
for device in disk slow cache; do
	tool dm remove "$device"
done
