/// Whom a source trusts over TLS, and as whom it is known there. Files are named, not held: they are read with each new
/// connection (those of authorities once a day), so that a certificate that was renewed is used by itself.
public struct HTTPTrust: Sendable, Equatable {
  /// The certificates of authorities, in PEM, that are trusted, and no others; nil: those of the system. Holds for an
  /// `https://` proxy, too.
  public var authorities: String?
  /// Shown to the origin of the source's URL alone, whatever redirects say.
  public var identity: HTTPIdentity?

  /// Trusts as the system does, and shows nothing, unless told.
  public init(authorities: String? = nil, identity: HTTPIdentity? = nil) {
    self.authorities = authorities
    self.identity = identity
  }
}

/// A client certificate and its key, in files.
public struct HTTPIdentity: Sendable, Equatable {
  /// In PEM, with the certificates of its chain behind it.
  public var certificate: String
  /// In PEM; nil: in the file of the certificate.
  public var key: String?
  /// What the key is encrypted with. A secret, never printed.
  public var passphrase: String?

  /// A certificate in a file with its key unless that has one of its own.
  public init(certificate: String, key: String? = nil, passphrase: String? = nil) {
    self.certificate = certificate
    self.key = key
    self.passphrase = passphrase
  }
}
