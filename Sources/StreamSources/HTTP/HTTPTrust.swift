/// The certificates that a source trusts over TLS, and its own. Stores paths: the files are read with each new
/// connection (authorities once a day), so a renewed certificate takes effect by itself.
public struct HTTPTrust: Sendable, Equatable {
  /// The only trusted authorities, a PEM file; nil: the system's. Applies to an `https://` proxy, too.
  public var authorities: String?
  /// The client certificate, sent only to the origin of the source's URL, whatever the redirects.
  public var identity: HTTPIdentity?

  /// The name that the server's certificate must have, and that is sent as the one it is asked for (SNI); nil: that of the
  /// URL. Only for the origin of the source's URL.
  public var serverName: String?

  /// By default trusts the system's authorities and sends no certificate.
  public init(authorities: String? = nil, identity: HTTPIdentity? = nil, serverName: String? = nil) {
    self.authorities = authorities
    self.identity = identity
    self.serverName = serverName
  }
}

/// The files of a client certificate and its key.
public struct HTTPIdentity: Sendable, Equatable {
  /// PEM, followed by its chain.
  public var certificate: String
  /// PEM; nil: in the certificate's file.
  public var key: String?
  /// The passphrase of the key. A secret, never printed.
  public var passphrase: String?

  /// A certificate whose file contains the key, unless `key` names another.
  public init(certificate: String, key: String? = nil, passphrase: String? = nil) {
    self.certificate = certificate
    self.key = key
    self.passphrase = passphrase
  }
}
