import HTTP

// Resources that are not streams.

extension HTTPSpeaker {
  func respondWithPage(_ request: HTTPRequest, _ head: RequestHead) throws(Rejection) {
    try refuseParameters(of: head)
    func addFields(_ head: inout ResponseHead) {
      head.add("ETag", Page.tag.fieldValue)
      head.add("Cache-Control", "no-cache")
      head.add("Content-Security-Policy", Page.securityPolicy)
      head.add("Referrer-Policy", "no-referrer")
      head.add("Cross-Origin-Resource-Policy", "same-origin")
    }
    if let condition = head["If-None-Match"], Page.tag.isNamed(by: condition) {
      return respond(.notModified, to: request) { addFields(&$0) }
    }
    respond(.ok, to: request, "text/html; charset=utf-8", Page.body) { addFields(&$0) }
  }
}
