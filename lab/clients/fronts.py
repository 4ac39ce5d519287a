"""Servers between a client and a group, as operators set them up: twemproxy and nginx."""

import pathlib
import shutil
import subprocess
import tempfile

import servers

TWEMPROXY = """\
group:
  listen: {listen}
  hash: fnv1a_64
  distribution: ketama
  auto_eject_hosts: true
  timeout: 1000
  server_retry_timeout: 6000
  server_failure_limit: 1
  preconnect: true
  servers:
{servers}
"""

# Both modules have all replicas in one upstream and go on with the next one. The memc module waits for the whole body.
NGINX = """\
load_module /usr/lib/nginx/modules/ngx_http_memc_module.so;
daemon off;
master_process off;
error_log stderr crit;
pid nginx.pid;
events {{}}
http {{
    access_log off;
    client_body_temp_path body;
    client_max_body_size 3m;
    client_body_buffer_size 3m;
    upstream group {{
{servers}
        keepalive 8;
    }}
    server {{
        listen {listen};
        location /memcached {{
            set $memcached_key $arg_key;
            memcached_next_upstream error timeout;
            memcached_connect_timeout 1s;
            memcached_read_timeout 3s;
            memcached_pass group;
        }}
        location /memc {{
            set $memc_cmd $arg_cmd;
            set $memc_key $arg_key;
            set $memc_value $arg_value;
            set $memc_exptime $arg_seconds;
            memc_next_upstream error timeout;
            memc_connect_timeout 1s;
            memc_read_timeout 3s;
            memc_pass group;
        }}
        location /store {{
            set $memc_key $arg_key;
            set $memc_exptime $arg_seconds;
            memc_next_upstream error timeout;
            memc_connect_timeout 1s;
            memc_read_timeout 3s;
            memc_pass group;
        }}
    }}
}}
"""


class Nothing:
    """No server between the client and the group."""

    def __init__(self, place):
        self.servers = place.servers

    def stop(self):
        pass


class Front:
    """A server that knows the addresses of a group, with a configuration of its own in a temporary folder."""

    def __init__(self, port, program, text, arguments):
        found = shutil.which(program) or shutil.which(program, path="/usr/sbin")
        if found is None:
            raise servers.Trouble(f"{program} is not installed; `table.py install` brings it")
        self.folder = tempfile.TemporaryDirectory()
        configuration = pathlib.Path(self.folder.name) / "configuration"
        configuration.write_text(text)
        self.servers = [f"127.0.0.1:{port}"]
        command = [found, *(argument.format(folder=self.folder.name, file=configuration) for argument in arguments)]
        self.child = subprocess.Popen(command, stdin=subprocess.DEVNULL, cwd=self.folder.name)
        servers.wait_for_port("127.0.0.1", port, self.child)

    def stop(self):
        servers.stop(self.child)
        self.folder.cleanup()


def twemproxy(place):
    port = next(place.front_ports)
    lines = "\n".join(f"   - {server}:1 replica{number}" for number, server in enumerate(place.servers, 1))
    text = TWEMPROXY.format(listen=f"127.0.0.1:{port}", servers=lines)
    arguments = ["--conf-file={file}", "--output={folder}/log", "--pid-file={folder}/pid", "--stats-addr=127.0.0.1"]
    return Front(port, "nutcracker", text, [*arguments, f"--stats-port={port + 1}"])


def nginx(place):
    port = next(place.front_ports)
    lines = "\n".join(f"        server {server} max_fails=1 fail_timeout=6s;" for server in place.servers)
    text = NGINX.format(listen=f"127.0.0.1:{port}", servers=lines)
    return Front(port, "nginx", text, ["-p", "{folder}", "-c", "{file}", "-e", "stderr"])


FRONTS = {None: Nothing, "twemproxy": twemproxy, "nginx": nginx}


def start(kind, place):
    """The front of a row; its `servers` are what the client gets."""
    return FRONTS[kind](place)
