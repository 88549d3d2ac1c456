#!/bin/sh
# Makes the user of the service. It starts nothing: the first start belongs to the administrator, an upgrade restarts.
set -e
root=${DPKG_ROOT:-}
if command -v systemd-sysusers >/dev/null 2>&1; then
  systemd-sysusers ${root:+--root="$root"} farhand.conf
elif ! grep -q '^farhand:' "$root/etc/passwd" 2>/dev/null; then
  useradd ${root:+--root="$root"} --system --user-group --home-dir /var/lib/farhand --shell /usr/sbin/nologin farhand
fi
[ -z "$root" ] && [ -d /run/systemd/system ] || exit 0
systemctl daemon-reload
if [ "$1" = configure ] && [ -n "$2" ] || [ "$1" = 2 ]; then # deb, rpm: an upgrade
  systemctl try-restart farhand.service
else
  echo "Set FARHAND_TOKEN in /etc/farhand/farhand.env, then: systemctl enable --now farhand"
fi
