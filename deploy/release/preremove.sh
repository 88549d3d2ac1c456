#!/bin/sh
# Stops the service before it is removed, not before an upgrade. Data in /var/lib/farhand stays.
set -e
[ -z "${DPKG_ROOT:-}" ] && [ -d /run/systemd/system ] || exit 0
if [ "$1" = remove ] || [ "$1" = 0 ]; then # deb, rpm
  systemctl disable --now farhand.service
fi
