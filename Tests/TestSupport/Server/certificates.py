"""Certificates for the tests: an authority, a server and a client of it, and a client that nobody knows."""
import os
import subprocess


def openssl(*arguments):
    subprocess.run(
        ("openssl",) + arguments, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def make(folder, passphrase):
    """The files by their names, all in `folder`."""
    path = lambda name: os.path.join(folder, name)
    with open(path("extensions"), "w") as file:
        file.write("subjectAltName=DNS:localhost,DNS:device.test,IP:127.0.0.1\n")

    def self_signed(name, subject):
        openssl("req", "-x509", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-days", "2",
                "-subj", "/CN=" + subject, "-keyout", path(name + ".key"), "-out", path(name + ".pem"))

    def signed(name, subject):
        openssl("req", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-subj", "/CN=" + subject,
                "-keyout", path(name + ".key"), "-out", path(name + ".request"))
        openssl("x509", "-req", "-days", "2", "-in", path(name + ".request"), "-CA", path("authority.pem"),
                "-CAkey", path("authority.key"), "-CAcreateserial", "-extfile", path("extensions"),
                "-out", path(name + ".pem"))

    self_signed("untrusted", "localhost")
    self_signed("stranger", "stranger")
    self_signed("authority", "Authority of the tests")
    signed("server", "localhost")
    signed("client", "client")
    openssl("pkey", "-in", path("client.key"), "-aes256", "-passout", "pass:" + passphrase, "-out", path("locked.key"))
    names = ["untrusted.pem", "untrusted.key", "stranger.pem", "stranger.key", "authority.pem", "server.pem",
             "server.key", "client.pem", "client.key", "locked.key"]
    return {name: path(name) for name in names}
