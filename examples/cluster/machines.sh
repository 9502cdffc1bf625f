#!/bin/bash
# A comparison on machines that are reached by SSH, or on this one alone.
#
#   bash machines.sh --preset pattern                          # the cores of this machine
#   HOSTS="one two" bash machines.sh --preset pattern          # and those of two others
#
# Wants, on every machine: this folder under the same path, ENVIRONMENT (./.venv) in it, and ports
# that are not closed between them. ssh must not ask for a password.
set -euo pipefail

environment="${ENVIRONMENT:-.venv}/bin"
host="${HOST:-$([ -z "${HOSTS:-}" ] && echo 127.0.0.1 || hostname)}"
port="${PORT:-8786}"
address="tcp://$host:$port"
workers="${WORKERS:-$(nproc)}"
crew=()
export OMP_NUM_THREADS=1

"$environment/dask" scheduler --host "$host" --port "$port" --no-dashboard &
crew+=($!)
trap 'kill "${crew[@]}" 2>/dev/null || true' EXIT

# A worker per core; each ends by itself a minute after the scheduler is gone.
work="dask worker $address --nthreads 1 --no-dashboard --death-timeout 60"
"$environment/"$work --nworkers "$workers" &
crew+=($!)
for other in ${HOSTS:-}; do
    ssh "$other" "cd '$PWD' && OMP_NUM_THREADS=1 $environment/$work --nworkers \$(nproc)" &
    crew+=($!)
done

"$environment/python" -c "from distributed import Client; Client('$address').wait_for_workers(1)"
"$environment/ordinate" compare "$@" --cluster "$address" --folder ordinate-runs
