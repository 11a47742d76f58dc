import TestSupport
import Testing

@testable import streamd

private let bearer = "[streams.s.http]\nurl = \"http://h\"\nevery = \"1s\"\nbearer = "

struct ConfigurationSecretTests {
  @Test func aSecretNeverPrintsItself() throws {
    let folder = try TemporaryFolder(["token": "s3cret"])
    let configuration = try parse(bearer + "{ credential = \"token\" }", credentials: folder.path)
    var dumped = ""
    dump(configuration, to: &dumped)
    for text in ["\(configuration)", String(reflecting: configuration), dumped] {
      #expect(text.contains("token"))
      #expect(!text.contains("s3cret"))
    }
  }

  @Test func aSecretOutsideOfAUnitIsAnError() {
    #expect(
      errors(bearer + "{ credential = \"token\" }") == [
        "test.toml:4: streams.s.http.bearer.credential: the credential \"token\" cannot be read: "
          + "CREDENTIALS_DIRECTORY is not set; the unit passes it with LoadCredential=token in [Service] "
          + "(systemctl edit streamd), after a restart"
      ])
  }

  @Test func aTrialWithoutCredentialsChecksEverythingElse() throws {
    func trial(_ text: String, credentials: String? = nil) throws(ConfigurationErrors) -> [String] {
      try ConfigurationSource.parse(
        [.init(path: "test.toml", bytes: Array(text.utf8))], credentialsDirectory: credentials, isTrial: true
      ).unreadCredentials
    }
    let cluster = "\n[cluster]\nname = \"a\"\nnats = [\"tls://h\"]\ncreds = { credential = \"jwt\" }\n"
    let certificate = "client_certificate = { credential = \"pem\" }\n"
    let text = bearer + "{ credential = \"token\" }\n" + certificate + cluster
    #expect(try trial(text) == ["jwt", "pem", "token"])
    let errors = #expect(throws: ConfigurationErrors.self) {
      try trial(text.replacing("name = \"a\"", with: "name = 5"))
    }
    #expect(errors?.sentences.count == 1 && errors?.sentences[0].hasPrefix("test.toml:8: cluster.name: ") == true)
    // A unit that has credentials lacks one: that is an error.
    let folder = try TemporaryFolder(["token": "s3cret"])
    #expect(try trial(bearer + "{ credential = \"token\" }", credentials: folder.path) == [])
    #expect(throws: ConfigurationErrors.self) {
      try trial(bearer + "{ credential = \"other\" }", credentials: folder.path)
    }
    #expect(CredentialFolder.remark(on: []) == nil)
    #expect(
      CredentialFolder.remark(on: ["jwt", "token"])
        == "2 credentials not checked, which only the unit has (CREDENTIALS_DIRECTORY is not set): jwt, token")
  }

  @Test func anUnusableSecretIsAnErrorThatDoesNotPrintIt() throws {
    let folder = try TemporaryFolder(["empty": "\n", "lines": "s3cret\nX: y"])
    try folder.write([0x73, 0xff], to: "bytes")
    let reasons = [
      "missing": "No such file or directory; the unit passes it with LoadCredential=missing in [Service] "
        + "(systemctl edit streamd), after a restart", "empty": "it is empty",
      "lines": "it contains control characters",
      "bytes": "it is not UTF-8",
    ]
    for (name, reason) in reasons {
      #expect(
        errors(bearer + "{ credential = \"\(name)\" }", credentials: folder.path) == [
          "test.toml:4: streams.s.http.bearer.credential: the credential \"\(name)\" cannot be read: \(reason)"
        ])
    }
  }

  @Test(arguments: ["../passwd", "/etc/passwd", "..", ".", "", "a:b"])
  func aCredentialIsReadOnlyFromItsFolder(name: String) throws {
    let folder = try TemporaryFolder()
    #expect(
      errors(bearer + "{ credential = \"\(name)\" }", credentials: folder.path) == [
        "test.toml:4: streams.s.http.bearer.credential: expected the name of a credential, got a string"
      ])
  }

  @Test func aTrailingNewlineIsNotPartOfASecret() throws {
    let folder = try TemporaryFolder(["unix": "a\n", "dos": "a\r\n", "bare": "a"])
    for name in ["unix", "dos", "bare"] {
      #expect(try CredentialFolder(path: folder.path).secret(named: name).content == "a")
    }
  }

  @Test func aSecretInTheFileIsRefusedAndNotPrinted() {
    #expect(
      errors(bearer + "\"s3cret\"") == [
        #"test.toml:4: streams.s.http.bearer: expected { credential = "name" }, got a string"#
      ])
    #expect(
      errors(bearer + "{ token = \"s3cret\" }") == [
        "test.toml:4: streams.s.http.bearer.token: unknown key; expected one of: credential",
        #"test.toml:4: streams.s.http.bearer: expected { credential = "name" }, got no credential"#,
      ])
    #expect(
      errors("[streams.s]\nhttp = { every = \"1s\", url = \"http://me:s3cret@h/\" }") == [
        "test.toml:2: streams.s.http.url: expected a URL without a user or password; use basic, bearer, headers or "
          + "query with a credential"
      ])
    #expect(
      errors("[streams.s]\nhttp = { every = \"1s\", url = \"ftp://me:s3cret@h/\" }") == [
        #"test.toml:2: streams.s.http.url: expected a URL such as "https://example.org/", got a string"#
      ])
    #expect(
      errors("[streams.s]\nhttp = { every = \"1s\", url = \"http://h\", headers = { k = \"s3\\ncret\" } }") == [
        "test.toml:2: streams.s.http.headers.k: expected at most 8192 bytes without control characters, got a string"
      ])
  }

  @Test func bearerAndAnAuthorizationHeaderExcludeEachOther() throws {
    let folder = try TemporaryFolder(["token": "s3cret"])
    #expect(
      errors(bearer + "{ credential = \"token\" }\nheaders = { authorization = \"x\" }", credentials: folder.path)
        == [
          "test.toml:4: streams.s.http.bearer: expected bearer or the header authorization, got both"
        ])
  }
}
