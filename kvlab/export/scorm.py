"""A page as a SCORM 1.2 package: a zip with the page and the manifest that an LMS reads.

SCORM 1.2 Content Aggregation Model, chapter 2.3. The page reports its score by the run-time API
(scorm.js): `cmi.core.score.raw` from 0 to 100, `lesson_status` incomplete, then completed.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from xml.sax.saxutils import escape

WHEN = (1980, 1, 1, 0, 0, 0)  # of each file: the same page gives the same bytes

MANIFEST = """<?xml version="1.0" encoding="UTF-8"?>
<manifest identifier="{id}" version="1.2"
  xmlns="http://www.imsproject.org/xsd/imscp_rootv1p1p2"
  xmlns:adlcp="http://www.adlnet.org/xsd/adlcp_rootv1p2">
  <metadata>
    <schema>ADL SCORM</schema>
    <schemaversion>1.2</schemaversion>
  </metadata>
  <organizations default="{id}-course">
    <organization identifier="{id}-course">
      <title>{title}</title>
      <item identifier="{id}-item" identifierref="{id}-page">
        <title>{title}</title>
      </item>
    </organization>
  </organizations>
  <resources>
    <resource identifier="{id}-page" type="webcontent" adlcp:scormtype="sco" href="index.html">
      <file href="index.html"/>
    </resource>
  </resources>
</manifest>
"""


def package(title: str, page: str) -> bytes:
    """The zip file."""
    identifier = "kvlab-" + hashlib.sha256(page.encode()).hexdigest()[:12]
    manifest = MANIFEST.format(id=identifier, title=escape(title))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in (("imsmanifest.xml", manifest), ("index.html", page)):
            archive.writestr(zipfile.ZipInfo(name, WHEN), content, zipfile.ZIP_DEFLATED)
    return packed.getvalue()
