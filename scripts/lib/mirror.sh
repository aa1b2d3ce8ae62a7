# shellcheck shell=bash
# Which Debian mirror to make the tree from. Sourced by setup.sh.

# The deb lines of this host in one form: "SIGNED-BY|- URI SUITE COMPONENT...", from both formats of source files.
host_sources() {
  local dir=/etc/apt file
  for file in "$dir/sources.list" "$dir"/sources.list.d/*.list; do
    [ -f "$file" ] || continue
    awk '$1 == "deb" {
           signed = "-"; i = 2
           if ($i ~ /^\[/) {
             for (; i <= NF; i++) {
               option = $i; gsub(/[\[\]]/, "", option)
               if (sub(/^signed-by=/, "", option)) signed = option
               if ($i ~ /\]$/) { i++; break }
             }
           }
           line = signed
           for (; i <= NF && $i !~ /^#/; i++) line = line " " $i
           print line
         }' "$file"
  done
  for file in "$dir"/sources.list.d/*.sources; do
    [ -f "$file" ] || continue
    awk 'function flush() {
           if (types ~ /(^| )deb( |$)/ && enabled != "no" && uris != "") {
             n = split(uris, u, " "); m = split(suites, s, " ")
             for (i = 1; i <= n; i++) for (j = 1; j <= m; j++) print (signed == "" ? "-" : signed), u[i], s[j], components
           }
           types = uris = suites = components = signed = enabled = ""; inside_key = 0
         }
         /^#/ { next }
         /^[ \t]*$/ { flush(); next }
         /^[ \t]/ { next }
         { name = tolower($1); sub(/:$/, "", name); value = $0; sub(/^[^:]*:[ \t]*/, "", value) }
         name == "types" { types = value }
         name == "uris" { uris = value }
         name == "suites" { suites = value }
         name == "components" { components = value }
         name == "enabled" { enabled = tolower(value) }
         name == "signed-by" { signed = value; if (signed == "") signed = "inline-key"; gsub(/[ \t]+/, ",", signed) }
         END { flush() }' "$file"
  done
}

# The host's own Debian mirror or nothing. Others' repositories also have paths that end in /debian: so it must
# carry "main" of a Debian suite and, where a key is named, be signed by Debian's.
host_mirror() {
  local signed uri suite components path
  while read -r signed uri suite components; do
    case $signed in -|*debian-archive*) ;; *) continue ;; esac
    case $uri in mirror+file:*) # a file that names the mirror, as on cloud images
      path=${uri#mirror+file:}
      uri=$(awk '!/^#/ && NF { print $1; exit }' "/${path#///}" 2>/dev/null || true) ;;
    esac
    case $uri in http://*/debian|http://*/debian/|https://*/debian|https://*/debian/) ;; *) continue ;; esac
    case " $components " in *" main "*) ;; *) continue ;; esac
    case $suite in bullseye|bookworm|trixie|forky|sid|stable|testing|oldstable|unstable) ;; *) continue ;; esac
    printf '%s\n' "${uri%/}"
    return
  done < <(host_sources)
}

# An explicit DEBIAN_MIRROR wins, then the host's own. Nothing printed: debootstrap's default.
choose_mirror() {
  if [ -n "${DEBIAN_MIRROR:-}" ]; then
    printf '%s\n' "${DEBIAN_MIRROR%/}"
  else
    host_mirror
  fi
}

# The host's apt settings that decide whether a mirror is reached at all: proxies and date checks.
host_apt_settings() {
  apt-config dump 2>/dev/null |
    grep -E '^Acquire::((https?|ftp)::(Proxy(::[^ ]*)?|Verify-Peer|Verify-Host)|Check-(Valid-Until|Date)|ForceIPv[46]|Retries) ' || true
}
