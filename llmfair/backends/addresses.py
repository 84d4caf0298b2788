"""Addresses of servers and proxies: read, or refused without being repeated, since they may hold credentials."""

from __future__ import annotations

import re
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from llmfair.errors import UsageError, warn

OPENAI_HOST = "api.openai.com"
KEY_VARIABLE = "OPENAI_API_KEY"

_BASE_URL = re.compile(
    r"(?P<scheme>https?)://(?P<host>\[[0-9A-Fa-f:.]+\]|[\w-]+(\.[\w-]+)*)(:(?P<port>\d{1,5}))?(/[^\s?#]*)?",
    re.IGNORECASE,
)
_EXAMPLE = "for example http://127.0.0.1:8000/v1"
_NOT_TAKEN = (
    (re.compile(r".*@.*", re.S), "holds credentials", "leave them out and set {key}"),
    (  # keys are passed that way, too
        re.compile(r"[^?#]*[?#].*", re.S),
        "holds a query, which no request would carry",
        "leave out all from the ? on; Azure OpenAI takes requests without one at https://NAME.openai.azure.com/openai/v1",
    ),
    (
        re.compile(r"(localhost|[\w-]+(\.[\w-]+)+|[\w.-]+(?=:\d)|\[[\da-fA-F:.]+\])(:\d+)?(/\S*)?"),
        "lacks http:// or https://",
        _EXAMPLE,
    ),
    (
        re.compile(r".*/((chat/)?completions|responses|messages|rerank|embeddings)/?"),
        "ends in the path of a request, which llmfair adds",
        "give what stands before it, " + _EXAMPLE,
    ),
)
"""Forms of an address that are not taken, what is wrong with each, and the way out."""
_PORTS = {"http": 80, "https": 443}


def server_of(base_url: str, source: str, key_variable: str = KEY_VARIABLE) -> str:
    """`host:port` of a base URL, or api.openai.com.

    Raises UsageError that names the URL's `source` and never repeats the URL, which may hold credentials.
    """
    for form, fault, hint in _NOT_TAKEN:
        if form.fullmatch(base_url):
            raise UsageError(f"{source} {fault}.", hint.format(key=key_variable))
    match = _BASE_URL.fullmatch(base_url)
    if (
        match is None
        or (port := int(match["port"] or _PORTS[match["scheme"].lower()])) > 65535
        or not _names_a_host(match["host"])
    ):
        raise UsageError(f"{source} is not the address of a server.", _EXAMPLE)
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
    """The proxy that the environment names for a URL. Raises UsageError for one that is not HTTP; of such a one for all
    schemes it only warns.

    Looked up once: aiohttp's `trust_env` does it for each request, in a thread, and refuses to send our
    Authorization header where a ~/.netrc has a line for the host.
    """
    parts = urlsplit(base_url)
    proxies, host = getproxies(), parts.hostname or ""
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or _in_a_range(host, proxies.get("no", "")) or proxy_bypass(host):
        return None
    if not _is_http_proxy(proxy):
        if parts.scheme not in proxies:
            warn("all_proxy names no HTTP proxy, and is not used.")
            return None
        raise UsageError(f"{parts.scheme}_proxy names no HTTP proxy.", "for example http://127.0.0.1:3128")
    return proxy


def _in_a_range(host: str, ranges: str) -> bool:
    """Whether an address lies in one of the ranges (10.0.0.0/8) among the names of `no_proxy`."""
    for name in filter(lambda name: "/" in name, re.split(r"[,\s]+", ranges)):
        with suppress(ValueError):
            if ip_address(host) in ip_network(name, strict=False):
                return True
    return False


def _is_http_proxy(proxy: str) -> bool:
    try:
        address = urlsplit(proxy)
        host, port = address.hostname, address.port
    except ValueError:
        return False
    if not host or port == 0 or address.scheme not in _PORTS:
        return False
    return _names_a_host(f"[{host}]" if ":" in host else host)
