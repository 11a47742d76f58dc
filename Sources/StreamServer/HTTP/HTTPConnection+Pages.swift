import HTTP

// Resources that are no streams.

extension HTTPConnection {
  func respondWithPage(_ request: HTTPRequest, _ head: RequestHead) throws(Rejection) {
    throw Rejection(.notFound, "there is no page yet")
  }
}
