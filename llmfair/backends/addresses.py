"""Addresses of servers and proxies: read, or refused without being repeated, since they may hold credentials."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from llmfair.errors import UsageError

OPENAI_HOST = "api.openai.com"
KEY_VARIABLE = "OPENAI_API_KEY"

# Credentials, a query (keys are passed that way, too) and a fragment have no place here.
_BASE_URL = re.compile(
    r"(?P<scheme>https?)://(?P<host>\[[0-9A-Fa-f:.]+\]|[\w-]+(\.[\w-]+)*)(:(?P<port>\d{1,5}))?(/[^\s?#]*)?"
)
_PORTS = {"http": 80, "https": 443}


def server_of(base_url: str, source: str, key_variable: str = KEY_VARIABLE) -> str:
    """`host:port` of a base URL, or api.openai.com.

    Raises UsageError that names the URL's `source` and never repeats the URL, which may hold credentials.
    """
    if "@" in base_url:
        raise UsageError(f"{source} holds credentials.", f"leave them out and set {key_variable}")
    match = _BASE_URL.fullmatch(base_url)
    if (
        match is None
        or (port := int(match["port"] or _PORTS[match["scheme"]])) > 65535
        or not _names_a_host(match["host"])
    ):
        raise UsageError(f"{source} is not the address of a server.", "for example http://127.0.0.1:8000/v1")
    host = match["host"].lower()
    return host if host == OPENAI_HOST else f"{host}:{port}"


def _names_a_host(host: str) -> bool:
    """Whether a name has labels of a length that can be looked up, and an address is one."""
    try:
        if host.startswith("["):
            IPv6Address(host[1:-1])
        elif host.replace(".", "").isdecimal():
            IPv4Address(host)
        else:
            host.encode("idna")
    except ValueError:
        return False
    return True


def proxy_for(base_url: str) -> str | None:
    """The proxy that the environment names for a URL. Raises UsageError for one that is not HTTP.

    Looked up once: aiohttp's `trust_env` does it for each request, in a thread, and refuses to send our
    Authorization header where a ~/.netrc has a line for the host.
    """
    parts = urlsplit(base_url)
    proxy = getproxies().get(parts.scheme)
    if not proxy or proxy_bypass(parts.hostname or ""):
        return None
    if not _is_http_proxy(proxy):
        raise UsageError(f"{parts.scheme}_proxy names no HTTP proxy.", "for example http://127.0.0.1:3128")
    return proxy


def _is_http_proxy(proxy: str) -> bool:
    try:
        address = urlsplit(proxy)
        host, port = address.hostname, address.port
    except ValueError:
        return False
    if not host or port == 0 or address.scheme not in _PORTS:
        return False
    return _names_a_host(f"[{host}]" if ":" in host else host)
