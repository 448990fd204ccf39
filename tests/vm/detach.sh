#!/bin/sh
rmmod toydir
