"""Makes the certificate of a cluster, or of a job: only its holders may talk to the other members."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from distributed import Security

ROLES = ("client", "scheduler", "worker")
NAME = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "psflow-cluster")])
CERTIFICATE = "-----BEGIN CERTIFICATE-----"
CLOCK_SKEW = timedelta(days=1)
VALIDITY = timedelta(days=3650)
"""Longer than any job; the key is gone when the cluster ends."""


def own_security() -> Security:
    """Return mutual TLS 1.3 with a new key and a self-signed certificate that all members of one cluster share.

    Notes
    -----
    The key exists in memory only. Workers get it through the pipe by which multiprocessing starts them; Dask writes it
    for a moment into a directory that only the owner can enter, because the ssl module reads keys from files.
    ``Security.temporary()`` makes an RSA key, which takes 20-80 ms longer.
    """
    return security_of(new_pem())


def new_pem() -> str:
    """Return a new key, followed by its self-signed certificate, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(NAME)
        .issuer_name(NAME)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + VALIDITY)
        .sign(key, hashes.SHA256())
    )
    key_bytes = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return (key_bytes + certificate.public_bytes(serialization.Encoding.PEM)).decode()


def is_pem(text: str) -> bool:
    """Return whether a text has the parts of a result of `new_pem`."""
    key, _, certificate = text.partition(CERTIFICATE)
    return "-----BEGIN " in key and "-----END CERTIFICATE-----" in certificate


def is_own(certificate: str) -> bool:
    """Return whether a certificate, as PEM, is one of `new_pem`, of any cluster."""
    return x509.load_pem_x509_certificate(certificate.encode()).subject == NAME


def security_of(pem: str) -> Security:
    """Return mutual TLS 1.3 for the holders of a result of `new_pem`."""
    key, begin, rest = pem.partition(CERTIFICATE)
    certificate = begin + rest
    of_roles = {
        f"tls_{role}_{part}": key if part == "key" else certificate for role in ROLES for part in ("key", "cert")
    }
    return Security(
        require_encryption=True,
        tls_ca_file=certificate,
        tls_min_version=ssl.TLSVersion.TLSv1_3,
        tls_max_version=ssl.TLSVersion.TLSv1_3,
        **of_roles,
    )
