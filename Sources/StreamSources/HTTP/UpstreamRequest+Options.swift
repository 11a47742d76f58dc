import CCurl

extension UpstreamRequest {
  /// libcurl's string options for the request; nil resets an option to its default.
  var options: [(option: CURLoption, value: String?)] {
    var options: [(CURLoption, String?)] = [
      (CURLOPT_URL, tlsName.map { url.replacingHost(by: $0) } ?? url.string), (CURLOPT_PROTOCOLS_STR, "http,https"),
      (CURLOPT_USERAGENT, userAgent),
      (CURLOPT_COOKIEFILE, ""),  // no file: keeps the cookies of this fetch in memory
      (CURLOPT_COOKIE, cookies),
    ]
    if bearer == nil, let login {
      options += [(CURLOPT_USERNAME, login.user), (CURLOPT_PASSWORD, login.password)]
    }
    if let authorities = trust.authorities {
      // Without the CA directory: Debian's libcurl would trust its default directory in addition.
      options += [
        (CURLOPT_CAINFO, authorities), (CURLOPT_CAPATH, nil),
        (CURLOPT_PROXY_CAINFO, authorities), (CURLOPT_PROXY_CAPATH, nil),
      ]
    }
    if let identity = trust.identity {
      options += [
        (CURLOPT_SSLCERT, identity.certificate), (CURLOPT_SSLKEY, identity.key ?? identity.certificate),
        // Without a passphrase, OpenSSL would prompt on the terminal and block all sources.
        (CURLOPT_KEYPASSWD, identity.passphrase ?? ""),
      ]
    }
    return options + wayOptions
  }

  /// The name in the place of that of the URL, whose server stays the same.
  var tlsName: String? { url.origin.scheme == "https" ? trust.serverName : nil }

  /// Where to connect instead of to the host that the option has as its URL's, in libcurl's format; nil: there.
  var connection: String? { tlsName.map { _ in "::\(url.origin.host):\(url.origin.port)" } }

  private var wayOptions: [(CURLoption, String?)] {
    if let unixSocket { return [(CURLOPT_UNIX_SOCKET_PATH, unixSocket), (CURLOPT_NOPROXY, "*")] }
    switch route {
    case .environment: return []
    case .direct: return [(CURLOPT_NOPROXY, "*")]
    case .proxy(let proxy):
      let login = proxy.login
      return [(CURLOPT_PROXY, proxy.url), (CURLOPT_NOPROXY, "")]
        + (login.map { [(CURLOPT_PROXYUSERNAME, $0.user), (CURLOPT_PROXYPASSWORD, $0.password)] } ?? [])
    }
  }
}

extension HTTPURL {
  /// The URL's user and password.
  var login: HTTPLogin? { user.map { HTTPLogin(user: $0, password: password ?? "") } }
}
